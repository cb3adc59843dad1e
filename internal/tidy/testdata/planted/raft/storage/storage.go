package storage

import (
	_ "net"
	_ "raftkv/raft"
	_ "raftkv/raft/transport" // want imports

	_ "github.com/gofrs/flock"
	_ "github.com/spf13/cobra" // want imports
)
