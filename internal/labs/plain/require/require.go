// Package require has the few assertions that the tests of the labs use, by the
// names of testify's, so that a student's module needs nothing from the network.
package require

import (
	"fmt"
	"reflect"
	"strings"
)

// TestingT is what an assertion needs of a *testing.T.
type TestingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

func fail(t TestingT, more []any, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	if len(more) > 0 {
		if f, ok := more[0].(string); ok {
			text += "\n" + fmt.Sprintf(f, more[1:]...)
		}
	}
	t.Fatalf("%s", text)
}

// Equal wants two equal values.
func Equal(t TestingT, want, got any, more ...any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		fail(t, more, "it is %v and not %v", got, want)
	}
}

// NotEqual wants two values that differ.
func NotEqual(t TestingT, other, got any, more ...any) {
	t.Helper()
	if reflect.DeepEqual(other, got) {
		fail(t, more, "it is %v, and should be something else", got)
	}
}

// True wants true.
func True(t TestingT, value bool, more ...any) {
	t.Helper()
	if !value {
		fail(t, more, "it is false")
	}
}

// False wants false.
func False(t TestingT, value bool, more ...any) {
	t.Helper()
	if value {
		fail(t, more, "it is true")
	}
}

// NoError wants nil.
func NoError(t TestingT, err error, more ...any) {
	t.Helper()
	if err != nil {
		fail(t, more, "error: %v", err)
	}
}

// ErrorContains wants an error whose text has a part.
func ErrorContains(t TestingT, err error, part string, more ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		fail(t, more, "the error is %v, without %q", err, part)
	}
}

// Greater wants got to be more than limit.
func Greater(t TestingT, got, limit any, more ...any) {
	t.Helper()
	if number(got) <= number(limit) {
		fail(t, more, "%v is not greater than %v", got, limit)
	}
}

// GreaterOrEqual wants got to be limit or more.
func GreaterOrEqual(t TestingT, got, limit any, more ...any) {
	t.Helper()
	if number(got) < number(limit) {
		fail(t, more, "%v is less than %v", got, limit)
	}
}

// Less wants got to be less than limit.
func Less(t TestingT, got, limit any, more ...any) {
	t.Helper()
	if number(got) >= number(limit) {
		fail(t, more, "%v is not less than %v", got, limit)
	}
}

// LessOrEqual wants got to be limit or less.
func LessOrEqual(t TestingT, got, limit any, more ...any) {
	t.Helper()
	if number(got) > number(limit) {
		fail(t, more, "%v is greater than %v", got, limit)
	}
}

func number(v any) float64 {
	n := reflect.ValueOf(v)
	switch {
	case n.CanInt():
		return float64(n.Int())
	case n.CanUint():
		return float64(n.Uint())
	case n.CanFloat():
		return n.Float()
	}
	panic(fmt.Sprintf("require: %v is no number", v))
}

// Len wants a slice, map or string of n.
func Len(t TestingT, list any, n int, more ...any) {
	t.Helper()
	if got := reflect.ValueOf(list).Len(); got != n {
		fail(t, more, "it has %d elements and not %d: %v", got, n, list)
	}
}

// Empty wants a zero value, or a list without elements.
func Empty(t TestingT, value any, more ...any) {
	t.Helper()
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid() || v.IsZero():
	case (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0:
	default:
		fail(t, more, "it is not empty: %v", value)
	}
}

// Contains wants a list with an element, or a text with a part.
func Contains(t TestingT, list, element any, more ...any) {
	t.Helper()
	if !contains(list, element) {
		fail(t, more, "%v is not in %v", element, list)
	}
}

// NotContains wants a list without an element.
func NotContains(t TestingT, list, element any, more ...any) {
	t.Helper()
	if contains(list, element) {
		fail(t, more, "%v is in %v", element, list)
	}
}

// Subset wants all elements of part to be in list.
func Subset(t TestingT, list, part any, more ...any) {
	t.Helper()
	elements := reflect.ValueOf(part)
	for i := range elements.Len() {
		if element := elements.Index(i).Interface(); !contains(list, element) {
			fail(t, more, "%v is not in %v", element, list)
		}
	}
}

func contains(list, element any) bool {
	if text, ok := list.(string); ok {
		return strings.Contains(text, element.(string))
	}
	elements := reflect.ValueOf(list)
	for i := range elements.Len() {
		if reflect.DeepEqual(elements.Index(i).Interface(), element) {
			return true
		}
	}
	return false
}
