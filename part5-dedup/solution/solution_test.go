// Package solution checks that the exercise of this part can be solved.
package solution

import (
	"testing"

	"raftkv/internal/exercise"
)

func TestSolution(t *testing.T) {
	exercise.Exercise{Name: "original_result", Folder: "kvservice", Green: [][]string{
		{"./kvservice", "./kvclient"},
		{"-run=TestHTTP", "."},
	}, OnlyAll: true}.Check(t)
}
