package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The planted repository declares TestNobodySees, TestSleeps, TestSkips and
// ExampleLog in package raft.
const plantedRoot = "../testdata/planted"

func events(lines ...string) *strings.Reader { return strings.NewReader(strings.Join(lines, "\n")) }

func TestAllRan(t *testing.T) {
	var out strings.Builder
	ok, err := run(events(
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestNobodySees"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestSleeps"}`,
		`{"Action":"output","Package":"raftkv/raft","Test":"TestSkips","Output":"quiet if it passes\n"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestSkips"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"ExampleLog"}`,
		`{"Action":"output","Package":"raftkv/raft","Output":"ok  \traftkv/raft\t0.1s\n"}`,
		`{"Action":"skip","Package":"raftkv/api"}`,
	), &out, plantedRoot)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "ok  \traftkv/raft\t0.1s\n4 of 4 test functions ran\n", out.String())
}

func TestOneDidNotRun(t *testing.T) {
	var out strings.Builder
	ok, err := run(events(
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestSleeps"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestSkips"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"ExampleLog"}`,
	), &out, plantedRoot)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, "raft/raft_plan9_test.go: TestNobodySees did not run\n3 of 4 test functions ran\n", out.String())
}

func TestOneSkippedItself(t *testing.T) {
	var out strings.Builder
	ok, err := run(events(
		`{"Action":"output","Package":"raftkv/raft","Test":"TestSkips","Output":"not today\n"}`,
		`{"Action":"skip","Package":"raftkv/raft","Test":"TestSkips"}`,
	), &out, plantedRoot)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "raftkv/raft.TestSkips was skipped\nnot today\n")
}

func TestOneFailed(t *testing.T) {
	var out strings.Builder
	ok, err := run(events(
		`{"Action":"output","Package":"raftkv/raft","Test":"TestSkips","Output":"because\n"}`,
		`{"Action":"fail","Package":"raftkv/raft","Test":"TestSkips"}`,
	), &out, plantedRoot)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "because\n")
}

func TestFailedOnceOfTwice(t *testing.T) {
	var out strings.Builder
	ok, err := run(events(
		`{"Action":"output","Package":"raftkv/raft","Test":"TestSkips","Output":"because\n"}`,
		`{"Action":"fail","Package":"raftkv/raft","Test":"TestSkips"}`,
		`{"Action":"output","Package":"raftkv/raft","Test":"TestSkips","Output":"fine now\n"}`,
		`{"Action":"pass","Package":"raftkv/raft","Test":"TestSkips"}`,
	), &out, plantedRoot)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, 1, strings.Count(out.String(), "because\n"))
	assert.NotContains(t, out.String(), "fine now")
}

func TestOtherInput(t *testing.T) {
	var out strings.Builder
	_, err := run(strings.NewReader("ok  \traftkv/raft\t0.1s\n"), &out, plantedRoot)
	assert.ErrorContains(t, err, "not what go test -json prints")
}
