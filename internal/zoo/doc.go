// Package zoo keeps famous bugs alive, to see whether the tests have teeth.
//
// Each folder of docs/zoo is one bug: README.md tells its story, and bug.txt says
// which lines of today's sources become which, and which test must notice.
// [Run] builds the tests with the changed files laid over the real ones (go
// build's -overlay; nothing is ever written to the sources) and demands that
// each test passes without the change and fails with it.
//
//	bug.go      Bug, and how a folder of docs/zoo is read
//	overlay.go  Hunks: the sources with a bug in them
//	probe.go    Probes: the tests that notice
//	run.go      Run: builds, runs, judges
//	parts.go    what becomes of the bugs in the parts of the tutorial
//	table.go    the bugs and the results as tables
//	hunt/       the program that looks for a bug with seeds of the simulator
//
// docs/zoo/README.md has the table of all bugs and says how to add one.
package zoo
