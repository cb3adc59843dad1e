// Command docgen makes what is generated in docs/: the figures of the chapters,
// from the stories of testdata/scenarios, and the pages of docs/diffs.
//
//	go run ./internal/docgen          # write
//	go run ./internal/docgen -check   # compare, and exit 1 if anything is stale
//
// The files:
//
//	main.go      what is made, and whether it is as it should be
//	figures.go   docs/chapters/figures.txt: which part of which story, and its caption
//	draw.go      a story becomes rows, notes and arrows
//	svg.go       those become a drawing
//	quote.go     code that a page shows
//	diffs.go     docs/diffs: from part to part
//	broken/      a command that lets a bug of the zoo loose and shows what a test says
package main
