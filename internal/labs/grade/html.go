package grade

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"

	"raftkv/internal/labs"
)

//go:embed report.html
var reportHTML string

var report = template.Must(template.New("").Funcs(template.FuncMap{
	"words": words,
	"sign": func(r labs.Result) string {
		return map[labs.Status]string{labs.OK: "✓", labs.Fail: "✗"}[r.Status]
	},
}).Parse(reportHTML))

// plainLogin is a login that can be the name of a file on every system.
var plainLogin = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_@+-]*(\.[A-Za-z0-9_@+-]+)*$`)

// row is a student in the matrix.
type row struct {
	Mark
	Page string
}

// WriteHTML writes the class as a matrix, index.html, and a page for each
// student into a folder, which is made if it is missing. The pages need no other
// files, and the same class gives the same pages. Pages of students who are no
// longer in the class stay.
func (c Class) WriteHTML(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	matrix := struct {
		Class
		Rows  []row
		Lost  []int // by check: how many have not all of its points
		Names []labs.Result
	}{Class: c}
	if len(c.Marks) > 0 {
		matrix.Names = c.Marks[0].Checks
		matrix.Lost = make([]int, len(matrix.Names))
	}
	for i, m := range c.Marks {
		r := row{m, m.Login + ".html"}
		if !plainLogin.MatchString(m.Login) || m.Login == "index" {
			r.Page = fmt.Sprintf("student %d.html", i+1)
		}
		matrix.Rows = append(matrix.Rows, r)
		for n, check := range m.Checks {
			if check.Points < check.Max {
				matrix.Lost[n]++
			}
		}
		if err := write(filepath.Join(dir, r.Page), "student", struct {
			Mark
			Part string
		}{m, c.Part}); err != nil {
			return err
		}
	}
	return write(filepath.Join(dir, "index.html"), "class", matrix)
}

func write(path, name string, data any) error {
	var page bytes.Buffer
	if err := report.ExecuteTemplate(&page, name, data); err != nil {
		return err
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}
