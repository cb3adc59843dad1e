package raft

import (
	"errors"
	"testing"

	"raftkv/internal/core"
	"raftkv/internal/scenario"
	"raftkv/internal/sim"
	full "raftkv/raft"
)

func TestScenarios(t *testing.T) { scenario.RunAll(t, newNode, "part3") }
func TestSwarm(t *testing.T)     { sim.Swarm(t, newNode, sim.Persistence, 10) }

// node makes this part a core.Core, so that the shared stories and seeds run on
// it. Its messages travel inside those of package raft.
type node struct {
	*ConsensusModule
	running [timerKinds]full.TimerNumber
	runs    full.TimerNumber
}

type body struct{ Body }

func (b body) SenderTerm() full.Term { return full.Term(b.Body.SenderTerm()) }

func newNode(config full.Config, saved full.PersistentState) (core.Core, full.Effects, error) {
	var peerIDs []ServerID
	for _, id := range config.Configuration.Voters {
		if id != config.ID {
			peerIDs = append(peerIDs, ServerID(id))
		}
	}
	state := PersistentState{Term(saved.CurrentTerm), ServerID(saved.VotedFor), nil}
	for _, e := range saved.Entries {
		state.Entries = append(state.Entries, LogEntry{Term(e.Term), EntryKind(e.Kind), e.Command})
	}
	cm, out := NewConsensusModule(ServerID(config.ID), peerIDs, state)
	n := &node{ConsensusModule: cm}
	return n, n.effects(out), nil
}

func (n *node) Step(event full.Event) full.Effects {
	switch ev := event.(type) {
	case full.ElectionTimeout:
		if ev.Number == n.running[ElectionTimer] { // not restarted or stopped since
			return n.effects(n.ConsensusModule.Step(ElectionTimeout{}))
		}
	case full.HeartbeatTimeout:
		if ev.Number == n.running[HeartbeatTimer] {
			return n.effects(n.ConsensusModule.Step(HeartbeatTimeout{}))
		}
	case full.Message:
		return n.effects(n.ConsensusModule.Step(Message{ServerID(ev.From), ServerID(ev.To), ev.Body.(body).Body}))
	case full.Saved:
		return n.effects(n.ConsensusModule.Step(Saved{Index(ev.Index), Term(ev.Term)}))
	case full.Submit:
		var effects full.Effects
		for _, command := range ev.Commands {
			effects.Merge(n.effects(n.ConsensusModule.Step(Submit{command})))
		}
		return effects
	}
	return full.Effects{}
}

func (n *node) effects(out Effects) (effects full.Effects) {
	if s := out.Submitted; s.Index != 0 {
		effects.Submitted = []full.Submitted{{FirstIndex: full.Index(s.Index), Term: full.Term(s.Term)}}
	} else if refused := (*NotLeaderError)(nil); errors.As(s.Err, &refused) {
		effects.Submitted = []full.Submitted{{Err: &full.NotLeaderError{Leader: full.ServerID(refused.Leader), Term: full.Term(refused.Term)}}}
	}
	for _, e := range out.Commit {
		effects.Commit = append(effects.Commit, full.CommitEntry{Index: full.Index(e.Index), Term: full.Term(e.Term), Kind: full.EntryKind(e.Kind), Command: e.Command})
	}
	if s := out.Save; s.Needed() {
		effects.Save = full.Save{CurrentTerm: full.Term(s.CurrentTerm), VotedFor: full.ServerID(s.VotedFor), FirstIndex: full.Index(s.FirstIndex)}
		for _, e := range s.Entries {
			effects.Save.Entries = append(effects.Save.Entries, fullEntry(e))
		}
	}
	effects.Send, effects.SendAfter = fullMessages(out.Send), fullMessages(out.SendAfter)
	for kind, action := range out.Timers {
		if action != LeaveTimer {
			n.runs++
			n.running[kind] = n.runs
			effects.Timers[kind] = full.TimerChange{Action: full.TimerAction(action), Number: n.runs}
		}
	}
	return effects
}

func (n *node) Status() full.Status {
	s := n.ConsensusModule.Status()
	return full.Status{
		ID: full.ServerID(s.ID), State: states[s.State], Term: full.Term(s.Term),
		VotedFor: full.ServerID(s.VotedFor), LeaderID: full.ServerID(s.LeaderID),
		CommitIndex: full.Index(s.CommitIndex), LastApplied: full.Index(s.LastApplied),
		SavedIndex: full.Index(s.SavedIndex), LastIndex: full.Index(s.LastIndex), LastTerm: full.Term(s.LastTerm),
	}
}

var states = map[CMState]full.CMState{Follower: full.Follower, Candidate: full.Candidate, Leader: full.Leader}

func (n *node) Entry(i full.Index) (full.LogEntry, bool) {
	if i == 0 || Index(i) > n.log.lastIndex() {
		return full.LogEntry{}, false
	}
	return fullEntry(n.log[i]), true
}

func fullMessages(messages []Message) (fm []full.Message) {
	for _, m := range messages {
		fm = append(fm, full.Message{From: full.ServerID(m.From), To: full.ServerID(m.To), Body: body{m.Body}})
	}
	return fm
}

func fullEntry(e LogEntry) full.LogEntry {
	return full.LogEntry{Term: full.Term(e.Term), Kind: full.EntryKind(e.Kind), Command: e.Command}
}

func (n *node) Progress(peer full.ServerID) (next, match full.Index, ok bool) {
	i, ok := n.nextIndex[ServerID(peer)]
	return full.Index(i), full.Index(n.matchIndex[ServerID(peer)]), ok
}
