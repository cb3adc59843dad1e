package transport

import _ "raftkv/cmd/raftkv" // want imports
