package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScanner(t *testing.T) {
	s := scanner{b: []byte(`[{"key":"a","value":"x y","client_id":7,"request_id":12}, {"key":"b", "value" : ""}]`)}
	require.True(t, s.object())
	require.Equal(t, "a", string(s.key))
	require.Equal(t, "x y", string(s.value))
	require.EqualValues(t, 7, s.client)
	require.EqualValues(t, 12, s.request)
	require.True(t, s.object())
	require.Equal(t, "b", string(s.key))
	require.Empty(t, s.value)
	require.False(t, s.object())
	for _, cut := range []string{``, `{`, `{"`, `{"key`, `{"key":"a`, `{"key":"a"`, `{"client_id":1`} {
		require.False(t, (&scanner{b: []byte(cut)}).object(), cut)
	}
}
