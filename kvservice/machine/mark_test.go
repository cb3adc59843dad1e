package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// A mark is seen by whoever applies it, and leaves the state as it is.
func TestMarkChangesNothing(t *testing.T) {
	l := newLog(t)
	l.set("x", "1")
	before := l.a.Hash()
	mark := Command{Kind: KindMark, Nonce: l.nonce(), Stamp: l.a.Now()}
	applied := l.applyRaw(mark.Encode())
	require.Equal(t, EventMark, applied.Event)
	require.Equal(t, mark.Identity(), applied.Identity)
	require.Equal(t, Result{Status: api.StatusOK, Outcome: api.OutcomeApplied}, applied.Result)
	require.Equal(t, before, l.a.Hash())
}
