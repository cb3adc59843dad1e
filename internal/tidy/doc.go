// Package tidy finds what breaks a fact that this repository promises about
// itself. It judges facts only; taste is for readers.
//
//	tree.go        reads the repository once: Go files, pages, other text
//	imports.go     which room may import what; which modules go.mod needs
//	pure.go        the core is deterministic: no goroutine, no clock, no map order
//	tests.go       no test is left out, and none waits for a clock
//	docs.go        links lead somewhere, quoted symbols exist
//	ledgers.go     tables in docs/ that must agree with the code
//	text.go        no leftovers in any text
//
// [Check] runs all of it; `go test ./internal/tidy` runs Check on this
// repository, and on testdata/planted, where every rule is broken once.
// Command internal/tidy/ran compares the tests that exist with those that ran.
package tidy
