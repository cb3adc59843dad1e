// Package kvclient is the store's client for Go programs. It finds the leader,
// numbers the writes, retries them safely and says honestly how they ended.
//
// One [KVClient] serves any number of goroutines, and sharing one is the fast
// way to use the store: writes that are made at the same time travel together.
// Every write has an identity, (ClientID, RequestID), that all its attempts
// repeat; the cluster carries out one of them and answers the others with its
// result. So a write ends in one of four ways:
//
//   - no error: it was applied, exactly once;
//   - [ErrDuplicate]: the same, but the result is not known any more;
//   - a *[UnknownError]: it may have been applied, or may still be, at most once
//     and never after a write was applied that this client has begun later, when
//     no earlier one was in progress;
//   - any other error: it was not applied and never will be.
//
// Reading order:
//
//	kvclient.go    KVClient and its operations
//	write.go       a write and its identity, for callers who keep identities themselves
//	batch.go       many writes together, by one call
//	coalesce.go    many calls together, by themselves
//	scan.go        many keys at once
//	admin.go       members, leadership and snapshots, for those who run the cluster
//	hash.go        whether the servers have the same state
//	errors.go      the errors above
//	session.go     registration, and which numbers are open
//	retry.go       one call: attempts, pauses, and when to stop
//	route.go       which endpoint to ask next
//	membership.go  which endpoints there are, when servers come and go
//	exchange.go    one attempt over HTTP
//
// The arithmetic of numbers and outcomes is a package of its own, numbering.
package kvclient
