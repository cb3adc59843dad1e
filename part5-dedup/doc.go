// Package part5 is part 5: de-duplication. A command that is sent again is
// carried out once. The code is in the folders below; the tests here run all of
// it.
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
//   - A client whose answer got lost learns that its command was carried out, but
//     not what it found: TestAnswerLostWithTheLeader.
//   - One client makes one call at a time; of two that overtake each other the
//     service drops one: TestLowerNumberIsNotCarriedOut.
//   - The service remembers every client for ever: TestNobodyIsForgotten.
//
// § means the extended Raft paper.
package part5
