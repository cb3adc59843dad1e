package kvservice

import (
	"encoding/json"
	"fmt"

	"raftkv/part5-dedup/api"
)

// Command is what a request puts into the log. Every server carries it out when
// its entry is committed, so that all of them go through the same states.
type Command struct {
	Kind         CommandKind
	Key          string
	Value        string `json:",omitempty"`
	CompareValue string `json:",omitempty"` // of a CAS
	api.Identity        // whose it is
}

// CommandKind says what a command does.
type CommandKind string

// A get is a command as well: what it answers is then the value at its place in
// the log, and not what a server that was cut off still holds.
const (
	CommandGet    CommandKind = "get"
	CommandPut    CommandKind = "put"
	CommandAppend CommandKind = "append"
	CommandCAS    CommandKind = "cas"
)

// Result is what carrying out a command has brought.
type Result struct {
	ResultValue string // the value that the key had before
	ResultFound bool   // whether it had one

	// IsDuplicate marks a command that was not carried out, because it, or a later
	// one of the same client, had been carried out before.
	IsDuplicate bool
}

// encode returns the command as it stands in the log.
func (cmd Command) encode() []byte {
	data, err := json.Marshal(cmd)
	if err != nil {
		panic(fmt.Sprintf("kvservice: a struct of strings does not encode: %v", err))
	}
	return data
}

// decodeCommand reads a command that encode has written. What else could stand
// in the log no server knows how to carry out, and to leave an entry out would
// make this server unlike the others.
func decodeCommand(data []byte) Command {
	var cmd Command
	if err := json.Unmarshal(data, &cmd); err != nil {
		panic(fmt.Sprintf("kvservice: the log holds %q, which is no command: %v", data, err))
	}
	return cmd
}
