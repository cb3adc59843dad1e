//go:build !unix

package kvservice

import "math"

// maxOpenFiles returns how many files the system lets this process open, which
// here is no small number.
func maxOpenFiles() int { return math.MaxInt32 }
