package machine

import (
	_ "crypto/sha256"
	_ "raftkv/raft"
	_ "time" // want imports
)
