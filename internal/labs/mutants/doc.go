// Package mutants grades students' own tests. It runs them against a part with
// bugs in it, of which they should find many, and against correct variants of
// the part, on which they must not fail.
//
//	student.go  the tests and stories of a folder
//	run.go      what they are run against, and what comes of it
//	report.go   the result in words
package mutants
