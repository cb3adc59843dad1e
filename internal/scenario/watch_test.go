package scenario

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/internal/core"
)

// In every story, each message is sent once and ends at most once, and nothing
// happens on a line before the last one that was told of.
func TestWatch(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(folder(t), "*.txt"))
	require.NoError(t, err)
	lost := 0
	for _, file := range files {
		line, sent, steps := 0, 0, 0
		ended := map[int]bool{}
		require.NoError(t, read(t, file).Watch(core.Raft, func(h Happening) {
			require.GreaterOrEqual(t, h.Line, line, file)
			line = h.Line
			switch h.What {
			case Stepped:
				steps++
				require.Equal(t, h.Step.After, h.Core.Status())
			case Sent, Copied:
				sent++
				require.Equal(t, sent, h.Number, file)
			case Lost, Arrived:
				require.LessOrEqual(t, h.Number, sent, file)
				require.False(t, ended[h.Number], file)
				ended[h.Number] = true
				if h.What == Lost {
					lost++
				}
			}
		}))
		require.Positive(t, steps, file)
	}
	require.Positive(t, lost)
}
