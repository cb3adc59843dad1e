// Package transport carries messages between the servers of a cluster.
//
// [ListenTCP] starts the transport of one server over TCP. [Network] joins
// servers inside one process by the same code over in-memory connections, for
// tests. Both promise little, as Raft asks for little: a message arrives whole
// and unchanged from the server that it names, or not at all. It may be late,
// and messages may overtake each other when a connection is made anew, or when
// one brings a part of a snapshot, which is large and lets others pass.
//
// Every pair of servers has two connections. A dials B and writes what A has
// to say to B; B dials A for the other direction. So no server depends on
// being dialled, and a connection has one reader, and one writer at a time.
//
// docs/protocol.md gives every byte. Reading order:
//
//	config.go     what a transport must be told, and the errors of Call
//	frame.go      length, checksums, payload
//	message.go    the payload that is a raft.Message
//	handshake.go  who is who, and which disk is whose
//	peers.go      who the other servers are, and how that changes
//	peer.go       what waits for one other server, and the goroutine that writes it
//	direct.go     what its sender writes, so that nobody need be woken for it
//	receive.go    the connections that others made
//	call.go       a request and its reply, for clients that asked the wrong server
//	endpoint.go   all of that for one server
//	complaints.go one line per trouble, not one per attempt
//	tcp.go        over TCP
//	memory.go     inside one process
package transport
