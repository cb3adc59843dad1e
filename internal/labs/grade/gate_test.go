package grade

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	rules := Rules{Imports: []string{"errors", "fmt", "slices"}}
	for text, why := range map[string]string{
		"import \"fmt\"\nfunc f() { fmt.Println() }":                              "",
		"import \"errors\"\nvar e = errors.New(\"x\")":                            "",
		"type T int\nvar list = []T{1, 2}\nvar m = map[string]func(){\"f\": f}":   "",
		"func (t T) init() {}":                                                    "",
		"// go:embed in a sentence is no directive\nvar x = make(map[string]int)": "",
		"import \"os\"":                        "f.go:2: os may not be imported here; allowed are errors, fmt, slices",
		"import \"net/http\"":                  "net/http may not",
		"import \"C\"":                         "cgo is not allowed",
		"import \"unsafe\"":                    "unsafe is not allowed",
		"import . \"fmt\"":                     "hides",
		"import x \"os/exec\"":                 "os/exec may not",
		"func init() {}":                       "f.go:2: init functions are not allowed",
		"func main() {}":                       "no main function",
		"func exit(code int)":                  "exit has no body",
		"//go:linkname f os.Exit\nfunc f() {}": "//go:linkname is not allowed",
		"//go:embed secret.txt\nvar s string":  "//go:embed is not allowed",
		"//go:noinline\nfunc f() {}":           "//go:noinline is not allowed",
		"//line other.go:1\nfunc init() {}":    "f.go:2: line directives",
		"/*line other.go:1*/":                  "line directives",
		"// +build linux":                      "build tags",
		"//export f\nfunc f() {}":              "//export is not allowed",
		"func f() { go f() }":                  "f.go:2: go statements are not allowed",
		"var x = f()":                          "f.go:2: the initial value",
		"var x = func() int { return 1 }()":    "the initial value",
		"import \"slices\"\nvar x = slices.ContainsFunc(list, f)":        "f.go:3: the initial value",
		"import \"slices\"\nvar x = slices.ContainsFunc([]int{1}, T.f)":  "the initial value",
		"import \"fmt\"\nvar (\n\ta = 1\n\tb = fmt.Sprint(printer{})\n)": "f.go:5: the initial value",
		"func f() {}\nfunc init() {}\nimport \"os\"":                     "",
	} {
		sentence := Inspect(map[string][]byte{"f.go": []byte("package raft\n" + text + "\n")}, rules)
		if why == "" {
			require.Empty(t, sentence, text)
		} else {
			require.Contains(t, sentence, why, text)
		}
	}
	require.Empty(t, Inspect(map[string][]byte{"f.go": []byte("package raft\nfunc f() { go f() }")}, Rules{Goroutines: true}))
	require.Contains(t, Inspect(map[string][]byte{"f.go": []byte("//go:build linux\n\npackage raft")}, rules), "f.go:1: //go:build is not allowed")
	two := map[string][]byte{"b.go": []byte("package raft\nimport \"os\""), "a.go": []byte("package raft\nfunc init() {}")}
	require.Contains(t, Inspect(two, rules), "a.go:2")
}
