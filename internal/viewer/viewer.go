// Package viewer shows a run. It reads the lines of a trace (package trace) and
// knows nothing of who wrote them.
//
// [WritePage] makes one HTML file, which holds the trace and all that shows it:
// page.html, page.css and page.js, in plain JavaScript. [Columns] is the same for
// a terminal, one line for each step.
package viewer

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"io"
	"iter"
	"strings"

	"raftkv/internal/trace"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// WritePage writes the page of a run. The page loads nothing from elsewhere and
// may be opened from a disk. The trace stands in it packed, and without the
// messages' own fields, which nobody sees there.
func WritePage(w io.Writer, lines iter.Seq[trace.Line]) error {
	var packed bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &packed)
	zip := gzip.NewWriter(text)
	for line := range lines {
		if send, ok := line.(trace.Send); ok {
			send.Body = nil
			line = send
		}
		b, err := trace.Marshal(line)
		if err != nil {
			return err
		}
		if _, err := zip.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	if err := zip.Close(); err != nil {
		return err
	}
	if err := text.Close(); err != nil {
		return err
	}
	// One pass, so that nothing in one of them is taken for another's place.
	fill := strings.NewReplacer("/*CSS*/", pageCSS, "/*JS*/", pageJS, "/*TRACE*/", packed.String())
	_, err := fill.WriteString(w, pageHTML)
	return err
}
