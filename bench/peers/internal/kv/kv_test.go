package kv

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApply(t *testing.T) {
	m := New()
	apply := func(puts ...Put) Result {
		var entry []byte
		for _, p := range puts {
			entry = p.Append(entry)
		}
		r, err := m.Apply(entry)
		require.NoError(t, err)
		return r
	}
	require.Equal(t, Result{}, apply(Put{1, 1, "a", "one"}))
	require.Equal(t, Result{Found: true}, apply(Put{1, 2, "b", "two"}, Put{2, 1, "a", ""}))
	require.Equal(t, Result{Duplicate: true}, apply(Put{1, 2, "b", "again"}))
	require.Equal(t, Result{Duplicate: true}, apply(Put{1, 1, "a", "late"}))
	value, found := m.Get("a")
	require.True(t, found)
	require.Empty(t, value)
	value, _ = m.Get("b")
	require.Equal(t, "two", value)
	_, found = m.Get("c")
	require.False(t, found)
}

func TestAnEntryThatIsCutShortIsRefused(t *testing.T) {
	entry := Put{1, 1, "key", "value"}.Append(nil)
	for n := 1; n < len(entry); n++ {
		_, err := New().Apply(entry[:n])
		require.Error(t, err, n)
	}
}

func TestSnapshot(t *testing.T) {
	m := New()
	for n, key := range []string{"a", "b", "a", ""} {
		_, err := m.Apply(Put{7, uint64(n + 1), key, "value of " + key}.Append(nil))
		require.NoError(t, err)
	}
	snapshot := m.Copy()
	_, err := m.Apply(Put{8, 1, "later", ""}.Append(nil))
	require.NoError(t, err)

	var file bytes.Buffer
	require.NoError(t, snapshot.Save(&file))
	other := New()
	require.NoError(t, other.Load(bytes.NewReader(file.Bytes())))
	require.Equal(t, snapshot.data, other.data)
	require.Equal(t, snapshot.sessions, other.sessions)
	require.NotContains(t, other.data, "later")
	for n := range file.Len() {
		require.Error(t, New().Load(bytes.NewReader(file.Bytes()[:n])), n)
	}
}
