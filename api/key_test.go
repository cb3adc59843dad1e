package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseIdempotencyKey(t *testing.T) {
	for text, want := range map[string]string{
		`order-7`: "order-7", `"order-7"`: "order-7", ` "a b,c" `: "a b,c", `"\"\\"`: `"\`,
		strings.Repeat("k", 64): strings.Repeat("k", 64),
	} {
		key, err := ParseIdempotencyKey([]string{text})
		require.NoError(t, err, text)
		require.Equal(t, want, key)
	}
	for _, values := range [][]string{
		{""}, {" "}, {`""`}, {`"`}, {`"a`}, {`a"`}, {`"a"b`}, {`"a\b"`}, {`"a\`}, {`a b`}, {`a,b`}, {`a\b`}, {"a\tb"}, {"\"\tb\""}, {"é"}, {"\"\xff\""},
		{strings.Repeat("k", 65)}, {"a", "a"},
	} {
		_, err := ParseIdempotencyKey(values)
		var refused *RequestError
		require.ErrorAs(t, err, &refused, "%q", values)
	}
	key, err := ParseIdempotencyKey(nil)
	require.NoError(t, err)
	require.Empty(t, key)
}
