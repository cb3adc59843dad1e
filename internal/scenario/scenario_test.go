package scenario

import (
	"testing"

	"raftkv/internal/core"
)

// TestScenarios plays every file in testdata/scenarios to package raft.
func TestScenarios(t *testing.T) {
	RunAll(t, core.Raft, "raft")
}
