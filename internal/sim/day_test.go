package sim

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Days compares each answer and all states itself. What is left to see is that it
// plays to the end, and twice the same.
func TestDays(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Days(&b))
	t.Log("\n" + b.String())
	require.True(t, strings.HasSuffix(b.String(), "\nthe ledger: anna; ruth; carl; order 17; order 17; carl;\n"))
	require.Contains(t, b.String(), "  24h02m  ruth asks again                                            SessionExpired, not_applied ")
	var again strings.Builder
	require.NoError(t, Days(&again))
	require.Equal(t, b.String(), again.String())
}

func TestDaysThatNobodyCanRead(t *testing.T) {
	full := errors.New("no room")
	require.ErrorIs(t, Days(brokenWriter{full}), full)
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
