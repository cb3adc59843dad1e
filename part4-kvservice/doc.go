// Package part4 is part 4: a key/value service on top of Raft. The code is in
// the folders below; the tests here run all of it.
//
// Reading order:
//
//	api/api.go               what clients and services say to each other
//	kvservice/command.go     what stands in the log
//	kvservice/datastore.go   what the log makes of it
//	kvservice/kvservice.go   into the log, out of the log, and who waits for what
//	kvservice/handlers.go    HTTP
//	kvclient/kvclient.go     finding the leader and asking again
//
// What still fails (the tests are in kvservice/stories_test.go):
//
//   - A client that hears nothing asks again, and its command is carried out
//     twice: TestAnswerLostWithTheLeader.
//   - The second time may come after another client's write and undo it:
//     TestLateRetryDoesNotUndoANewerWrite.
//
// § means the extended Raft paper.
package part4
