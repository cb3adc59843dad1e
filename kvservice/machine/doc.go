// Package machine is the replicated state machine: the keys and values, and
// the sessions that make every write happen once. Every server applies the same
// entries in the same order, so everything here must follow from the entries
// alone. There is no clock, no goroutine, no lock and no randomness, and no map
// is ranged over.
//
// Reading order:
//
//	command.go    Command: one operation, and the Identity that answers go by
//	encoding.go   the bytes of a command in the log
//	machine.go    Machine, Apply and Settings
//	datastore.go  DataStore: keys, values and versions
//	items.go      the items in little memory; blocktree.go: the tree that they hang in
//	sessions.go   which write is new (the posts' lastRequestIDPerClient)
//	records.go    what a session remembers of its requests
//	lifetime.go   when a session ends
//	batch.go      several operations in one entry
//	result.go     what a command came to, and the answer to the client
//	logtime.go    LogTime and LogClock: time that every server agrees on
//	hash.go       one number for the whole state
//	snapshot.go   the whole state as bytes, and back
//
// docs/sessions.md tells the story of sessions.go, docs/snapshot-format.md
// lists the bytes of snapshot.go.
package machine
