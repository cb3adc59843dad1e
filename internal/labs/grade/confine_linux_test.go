package grade

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfine(t *testing.T) {
	limits := Limits{CPU: time.Second, Memory: 128 << 20, Output: 64 << 10}
	self, err := os.Executable()
	require.NoError(t, err)
	c := newConfinement(helper)
	run := func(t *testing.T, misdeed string) outcome {
		o, err := c.run(t.Context(), limits, nil, self, misdeed)
		require.NoError(t, err)
		return o
	}
	for misdeed, ending := range map[string]Ending{
		"loop": OutOfTime, "eat": OutOfRoom, "talk": Talkative, "leave a child": Ended,
	} {
		t.Run(misdeed, func(t *testing.T) {
			t.Parallel()
			o := run(t, misdeed)
			require.Equal(t, ending, o.ending, "%s", o.printed)
			require.Empty(t, o.channel)
		})
	}
	t.Run("be good", func(t *testing.T) {
		o := run(t, "be good")
		require.Equal(t, Ended, o.ending)
		require.Equal(t, "a verdict", string(o.channel))
		require.Equal(t, "something printed\n", string(o.printed))
	})
	t.Run("write a file", func(t *testing.T) {
		require.NotContains(t, string(run(t, "write a file").printed), "nil")
	})
	t.Run("list the network", func(t *testing.T) {
		if c.namespaces == 0 {
			require.Contains(t, c.String(), "import gate")
			return
		}
		o := run(t, "list the network")
		require.Contains(t, string(o.printed), "1 interfaces") // its own loopback, which is down
		require.Contains(t, string(o.printed), "network is unreachable")
	})
}
