package somewhere // want imports
