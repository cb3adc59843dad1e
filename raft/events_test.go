package raft

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write carries out a Save on a disk.
func (s *PersistentState) write(save Save) {
	if !save.Needed() {
		return
	}
	s.CurrentTerm, s.VotedFor = save.CurrentTerm, save.VotedFor
	if save.Reset.Index != 0 {
		s.Start, s.Entries = save.Reset, nil
	}
	if save.FirstIndex != 0 {
		s.Entries = append(slices.Clone(s.Entries[:save.FirstIndex-s.Start.Index-1]), save.Entries...)
	}
}

// TestMergeEqualsTheSequence: a disk that got the merged Save holds what it
// would hold after one Save at a time, and nothing else is lost or turned round.
func TestMergeEqualsTheSequence(t *testing.T) {
	rng := seeded()
	for range 5_000 {
		var merged Effects
		var timers Timers
		var one, all PersistentState
		for range rng.IntN(4) { // what was saved before
			one.Entries = append(one.Entries, LogEntry{Term: 1, Command: []byte("old")})
		}
		all.Entries = slices.Clone(one.Entries)
		var sent, sentAfter, committed, submitted, answered, received int
		var compact Index

		for step := range 1 + rng.IntN(6) {
			var e Effects
			if rng.IntN(3) > 0 {
				e.Save = Save{CurrentTerm: Term(step + 1), VotedFor: ServerID(rng.IntN(3))}
				begin := one.Start.Index
				length := len(one.Entries)
				if rng.IntN(4) == 0 { // a snapshot, and more may follow in the same batch
					begin += Index(1 + rng.IntN(3))
					length = 0
					e.Save.Reset = LogPosition{begin, Term(step)}
				}
				if rng.IntN(3) > 0 {
					e.Save.FirstIndex = begin + Index(1+rng.IntN(length+1))
					for n := range 1 + rng.IntN(3) {
						e.Save.Entries = append(e.Save.Entries, LogEntry{Term: Term(step + 1), Command: fmt.Appendf(nil, "%d.%d", step, n)})
					}
				}
			}
			for range rng.IntN(3) {
				sent++
				e.Send = append(e.Send, message(1, 2, AppendEntriesArgs{Term: Term(sent)}))
			}
			for range rng.IntN(3) {
				sentAfter++
				e.SendAfter = append(e.SendAfter, message(1, 2, RequestVoteReply{Term: Term(sentAfter)}))
			}
			for range rng.IntN(3) {
				committed++
				e.Commit = append(e.Commit, CommitEntry{Index: Index(committed)})
			}
			for range rng.IntN(3) {
				submitted++
				e.Submitted = append(e.Submitted, Submitted{FirstIndex: Index(submitted)})
			}
			for range rng.IntN(3) {
				answered++
				e.Answers = append(e.Answers, Answer{Request: RequestID(answered)})
			}
			for range rng.IntN(3) {
				received++
				e.Receive = append(e.Receive, Chunk{Offset: uint64(received)})
			}
			if rng.IntN(3) == 0 {
				compact++
				e.Compact = compact
			}
			for kind := range e.Timers {
				if action := TimerAction(rng.IntN(3)); action != LeaveTimer {
					e.Timers[kind] = TimerChange{action, TimerNumber(step)}
					timers[kind] = e.Timers[kind]
				}
			}
			one.write(e.Save)
			merged.Merge(e)
		}

		all.write(merged.Save)
		require.Equal(t, one, all)
		require.Equal(t, timers, merged.Timers)
		require.Len(t, merged.Send, sent)
		require.Len(t, merged.SendAfter, sentAfter)
		require.Len(t, merged.Commit, committed)
		require.Len(t, merged.Submitted, submitted)
		require.Len(t, merged.Answers, answered)
		require.Len(t, merged.Receive, received)
		require.Equal(t, compact, merged.Compact)
		for i := range merged.Answers {
			require.Equal(t, RequestID(i+1), merged.Answers[i].Request)
		}
		for i := range merged.Receive {
			require.Equal(t, uint64(i+1), merged.Receive[i].Offset)
		}
		for i := range merged.Send {
			require.Equal(t, Term(i+1), merged.Send[i].Term())
		}
		for i := range merged.SendAfter {
			require.Equal(t, Term(i+1), merged.SendAfter[i].Term())
		}
		for i := range merged.Commit {
			require.Equal(t, Index(i+1), merged.Commit[i].Index)
		}
		for i := range merged.Submitted {
			require.Equal(t, Index(i+1), merged.Submitted[i].FirstIndex)
		}
	}
}

// TestMergeWritesIntoNoLog: the entries of a Save share memory with the log.
func TestMergeWritesIntoNoLog(t *testing.T) {
	cm, _ := start(t, plain(2, 3), PersistentState{})
	var batch Effects
	step := func(prev Index, prevTerm Term, e ...LogEntry) {
		batch.Merge(cm.Step(message(1, 2, AppendEntriesArgs{Term: e[len(e)-1].Term, LeaderID: 1, PrevLogIndex: prev, PrevLogTerm: prevTerm, Entries: e})))
	}
	step(0, 0, entries(1, 1, 1)...)
	step(3, 1, LogEntry{Term: 1, Command: []byte("four")})
	step(2, 1, LogEntry{Term: 2, Command: []byte("other three")})
	step(3, 2, LogEntry{Term: 2, Command: []byte("other four")}, LogEntry{Term: 2, Command: []byte("five")})
	assert.Equal(t, Index(1), batch.Save.FirstIndex)
	assert.Equal(t, cm.log.slice(1, cm.log.lastIndex()), batch.Save.Entries)

	// A Save of one step still shares all of its memory, here with the log.
	before := slices.Clone(cm.log.entries)
	batch = Effects{Save: Save{CurrentTerm: 2, FirstIndex: 1, Entries: cm.log.slice(1, cm.log.lastIndex())}}
	batch.Merge(Effects{Save: Save{CurrentTerm: 3, FirstIndex: 2, Entries: entries(3)}})
	assert.Equal(t, before, cm.log.entries)
}

// TestOneBatchOrMany steps the same messages one by one and all together: what
// is on the disk and in the log afterwards is the same.
func TestOneBatchOrMany(t *testing.T) {
	rng := seeded()
	for range 2_000 {
		alone, _ := start(t, plain(3, 3), PersistentState{})
		together, _ := start(t, plain(3, 3), PersistentState{})
		var aloneDisk, togetherDisk PersistentState
		var batch Effects
		term := Term(1)
		for range 1 + rng.IntN(8) {
			term += Term(rng.IntN(2))
			var m Message
			if rng.IntN(3) == 0 {
				m = message(1, 3, RequestVoteArgs{Term: term, CandidateID: 1, LastLogIndex: 99, LastLogTerm: term - 1})
				term++ // nobody wins that one
			} else {
				prev := Index(rng.IntN(int(alone.log.lastIndex()) + 1))
				prevTerm, _ := alone.log.term(prev)
				m = message(2, 3, AppendEntriesArgs{Term: term, LeaderID: 2, PrevLogIndex: prev, PrevLogTerm: prevTerm, Entries: []LogEntry{{Term: term}}})
			}
			aloneDisk.write(stepSaved(alone, m).Save)
			batch.Merge(together.Step(m))
		}
		togetherDisk.write(batch.Save)
		require.Equal(t, aloneDisk, togetherDisk)
		require.Equal(t, alone.log.entries, together.log.entries)
	}
}
