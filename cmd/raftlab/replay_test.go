package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/sim"
)

// A trace file shows the same as the run that it was made of.
func TestReplayOfATraceFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.jsonl")
	written, err := lab(t, "replay", "--seed", "3", "--profile", "commands", "-w", "json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(written), 0o644))

	run, err := lab(t, "replay", "--seed", "3", "--profile", "commands")
	require.NoError(t, err)
	shown, err := lab(t, "replay", "--trace", file)
	require.NoError(t, err)
	assert.Equal(t, run, shown)

	page, pageOfFile := filepath.Join(dir, "run.html"), filepath.Join(dir, "file.html")
	_, err = lab(t, "replay", "--seed", "3", "--profile", "commands", "--html", page)
	require.NoError(t, err)
	_, err = lab(t, "replay", "--trace", file, "--html", pageOfFile)
	require.NoError(t, err)
	one, err := os.ReadFile(page)
	require.NoError(t, err)
	other, err := os.ReadFile(pageOfFile)
	require.NoError(t, err)
	assert.Equal(t, one, other)

	require.NoError(t, os.WriteFile(file, []byte("not a trace\n"), 0o644))
	_, err = lab(t, "replay", "--trace", file)
	assert.ErrorContains(t, err, "line 1 of the trace")
	_, err = lab(t, "replay", "--trace", file, "--html", page)
	assert.ErrorContains(t, err, "line 1 of the trace")
}

func TestReplayOfDecisions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.json")
	d := sim.Decisions{Seed: 3, Profile: "persistence"}
	require.NoError(t, writeFile(file, d.Write))
	out, err := lab(t, "replay", "--decisions", file)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "seed 3, profile persistence, with 0 faults and 0 calls\n"), "%.100s", out)
	assert.NotContains(t, out, "FAULT")

	_, err = lab(t, "replay", "--decisions", file, "--seed", "4")
	assert.Error(t, err, "which of the two?")
}

func TestShrinkOfASeedThatHolds(t *testing.T) {
	_, err := lab(t, "shrink", "--seed", "3", "--profile", "elections")
	assert.EqualError(t, err, "seed 3 of profile elections does not fail")
}

func TestScenario(t *testing.T) {
	list, err := lab(t, "scenario", "list")
	require.NoError(t, err)
	assert.Contains(t, list, "figure8 ")
	out, err := lab(t, "scenario", "run", "figure8", "majority")
	require.NoError(t, err)
	assert.Equal(t, "ok      figure8\nok      majority\n2 of 2 stories hold\n", out)

	file := filepath.Join(t.TempDir(), "wrong.txt")
	require.NoError(t, os.WriteFile(file, []byte("# Nobody leads at first.\n\ncluster 1 2 3\n? 1 is leader\n"), 0o644))
	out, err = lab(t, "scenario", "run", file, "-w", "json")
	assert.ErrorIs(t, err, errFound)
	assert.Contains(t, out, `"Name":"wrong","OK":false`)
	_, err = lab(t, "scenario", "run", "no-such-story")
	assert.ErrorContains(t, err, "there is no story no-such-story")
}

// What the zoo lays over the sources can be kept and used.
func TestZooOverlay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bug")
	out, err := lab(t, "zoo", "overlay", "double-vote", "--out", dir)
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	assert.Contains(t, out, "go run -overlay "+file+" ./cmd/raftlab shrink")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "election.go")

	_, err = lab(t, "zoo", "overlay", "no-such-bug")
	assert.Error(t, err)
}
