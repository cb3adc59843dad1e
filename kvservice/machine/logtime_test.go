package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// A new leader's clock is another one, and may be behind or be set back. Its stamps
// begin where the log has come to, and a stamp from before changes nothing.
func TestTimeDoesNotGoBack(t *testing.T) {
	l := newLogWith(t, short)
	c := issued('C')
	l.apply(opening(c).at(1000))
	l.apply(appending(c, 1, "x", "a").at(1050))
	require.True(t, l.apply(appending(c, 1, "x", "a").at(7)).Duplicate)
	require.Equal(t, LogTime(1050), l.a.Now(), "goes back")
	require.True(t, l.apply(appending(c, 1, "x", "a").at(1149)).Duplicate)

	var clock LogClock
	clock.Start(l.a.Now(), 5_000_000)
	require.Equal(t, LogTime(1149), clock.Stamp(5_000_000))
	require.Equal(t, LogTime(1159), clock.Stamp(5_000_010))
	require.Equal(t, LogTime(1149), clock.Stamp(4_000_000), "a clock that is set back")
	clock.Start(l.a.Now(), -3) // the next leader's began yesterday, or tomorrow
	require.Equal(t, LogTime(1249), clock.Stamp(97))
	requireRefused(t, l.apply(appending(c, 1, "x", "a").at(clock.Stamp(97))), api.StatusSessionExpired, api.OutcomeNotApplied)
}

// Answers were lost, and the client sends again what is open: in other batches
// than the first time, or alone. Each operation is new or not for itself.
func TestBatchesOverlap(t *testing.T) {
	l := newLog(t)
	c := l.opened('C')
	write := func(n uint64) Command { return appending(c, n, "x", string(rune('a'+n-1))).inFlight(0) }
	l.apply(write(2))
	duplicates := func(numbers ...uint64) (got []bool) {
		var operations []Command
		for _, n := range numbers {
			operations = append(operations, write(n))
		}
		for i, o := range l.batch(operations...).Operations {
			require.Equal(t, api.StatusOK, o.Result.Status)
			require.Equal(t, operations[i].Identity(), o.Identity)
			got = append(got, o.Result.Duplicate)
		}
		return got
	}
	require.Equal(t, []bool{true, false, false}, duplicates(2, 1, 3))
	require.Equal(t, []bool{false, true, true, true}, duplicates(4, 3, 2, 1))
	require.Equal(t, "bacd", l.get("x"))
}
