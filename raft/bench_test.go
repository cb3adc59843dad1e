package raft

import (
	"fmt"
	"testing"
)

// snapshotEvery is how many entries pass between two snapshots in a benchmark;
// without any the log would fill the memory.
const snapshotEvery = 1 << 16

// BenchmarkStepLeader is a leader of three servers that takes commands, n at a
// time, until they are committed and applied.
func BenchmarkStepLeader(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("commands=", n), func(b *testing.B) {
			cm := settled(b, 3)
			commands := benchmarkCommands(n)
			b.ReportAllocs()
			for b.Loop() {
				var effects Effects
				effects.Merge(cm.Step(Submit{Commands: commands}))
				effects = Effects{}
				effects.Merge(cm.Step(Saved{Index: cm.log.lastIndex(), Term: cm.currentTerm}))
				effects = Effects{}
				effects.Merge(cm.Step(answered(cm, 2)))
				effects.Merge(cm.Step(answered(cm, 3)))
				effects.Merge(cm.Step(Applied{Index: cm.commitIndex}))
				if len(effects.Commit) != n {
					b.Fatal("not committed")
				}
				snapshotIfDue(cm)
			}
		})
	}
}

// BenchmarkStepFollower is a follower that gets commands, n in a message.
func BenchmarkStepFollower(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("commands=", n), func(b *testing.B) {
			cm, _ := start(b, protecting(2, 3), PersistentState{})
			stepSaved(cm, message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1}))
			entries := make([]LogEntry, n)
			for i, command := range benchmarkCommands(n) {
				entries[i] = LogEntry{Term: 1, Command: command}
			}
			b.ReportAllocs()
			for b.Loop() {
				last := cm.log.lastIndex()
				var effects Effects
				effects.Merge(cm.Step(message(1, 2, AppendEntriesArgs{Term: 1, LeaderID: 1,
					PrevLogIndex: last, PrevLogTerm: cm.log.lastTerm(), Entries: entries, LeaderCommit: last})))
				effects.Merge(cm.Step(Applied{Index: cm.commitIndex}))
				effects = Effects{}
				effects.Merge(cm.Step(Saved{Index: cm.log.lastIndex(), Term: cm.currentTerm}))
				snapshotIfDue(cm)
			}
		})
	}
}

func benchmarkCommands(n int) [][]byte {
	commands := make([][]byte, n)
	for i := range commands {
		commands[i] = make([]byte, 128)
	}
	return commands
}

func snapshotIfDue(cm *ConsensusModule) {
	if i := cm.lastApplied; i >= cm.snapshot.Index+snapshotEvery {
		term, _ := cm.log.term(i)
		cm.Step(SnapshotStored{Snapshot{Index: i, Term: term, Configuration: cm.configuration}})
	}
}
