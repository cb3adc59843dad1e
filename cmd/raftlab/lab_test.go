package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lab runs a command line and returns what it prints.
func lab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, progress bytes.Buffer
	c := newCommand()
	c.SetOut(&out)
	c.SetErr(&progress)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestChaos(t *testing.T) {
	out, err := lab(t, "chaos", "--seeds", "6", "--jobs", "2", "--profile", "commands")
	require.NoError(t, err)
	assert.Contains(t, out, "6 seeds of profile commands")
	assert.True(t, strings.HasSuffix(out, "ok\n"), out)
}

func TestReplayIsTheSameEachTime(t *testing.T) {
	first, err := lab(t, "replay", "--seed", "3")
	require.NoError(t, err)
	again, err := lab(t, "replay", "--seed", "3")
	require.NoError(t, err)
	require.Equal(t, first, again)
	assert.Contains(t, first, "everything is healed")
	assert.True(t, strings.HasSuffix(first, "ok\n"), "the verdict comes last")

	tail, err := lab(t, "replay", "--seed", "3", "--tail", "5")
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(first, tail), "the tail is the end of the whole")

	other, err := lab(t, "replay", "--seed", "4", "--tail", "5")
	require.NoError(t, err)
	assert.NotEqual(t, tail, other)
}

func TestReplayAsJSON(t *testing.T) {
	out, err := lab(t, "replay", "--seed", "3", "-w", "json", "--tail", "200")
	require.NoError(t, err)
	objects := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			require.True(t, json.Valid([]byte(line)), line)
			objects++
		}
	}
	assert.Equal(t, 200, objects)
}

func TestHash(t *testing.T) {
	first, err := lab(t, "hash", "--seeds", "3")
	require.NoError(t, err)
	again, err := lab(t, "hash", "--seeds", "3")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Equal(t, 3, strings.Count(first, " ok\n"))
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"chaos", "--seeds", "0"},
		{"chaos", "--jobs", "0"},
		{"chaos", "--profile", "part9"},
		{"replay", "-w", "xml"},
		{"replay", "17"},
		{"hash", "--profile", "part9"},
	} {
		_, err := lab(t, args...)
		assert.Error(t, err, "%v", args)
	}
}
