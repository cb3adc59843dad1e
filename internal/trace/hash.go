package trace

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"raftkv/raft"
)

// Hash folds records into one number. The zero value is the hash of no records.
// The same records give the same number on every architecture; it is meant to
// tell runs apart, not to withstand anyone who looks for collisions.
type Hash struct{ sum uint64 }

// Sum returns the hash of all records added so far.
func (h *Hash) Sum() uint64 { return h.sum }

// Add adds a record: what happened, what the server's state is afterwards, and
// the effects. Of a message type that this package does not know (the tutorial
// parts have their own) only sender, receiver and term count.
func (h *Hash) Add(r *Record) {
	h.words(r.Number, uint64(r.At), uint64(r.Server))
	h.text(r.Note)
	h.event(r.Event)
	h.status(&r.After)
	h.effects(&r.Effects)
}

// word mixes one word in. The multiplier is that of FNV-1a; the rotation brings
// high bits down, which a multiplication alone never does.
func (h *Hash) word(w uint64) {
	h.sum = bits.RotateLeft64((h.sum^w^0xcbf29ce484222325)*0x00000100000001b3, 29)
}

func (h *Hash) words(ws ...uint64) {
	for _, w := range ws {
		h.word(w)
	}
}

func (h *Hash) bytes(b []byte) {
	h.word(uint64(len(b)))
	for len(b) >= 8 {
		h.word(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var rest uint64
	for _, c := range b {
		rest = rest<<8 | uint64(c)
	}
	h.word(rest)
}

func (h *Hash) text(s string) {
	h.word(uint64(len(s)))
	for i := range len(s) {
		h.word(uint64(s[i]))
	}
}

func (h *Hash) flag(b bool) {
	if b {
		h.word(1)
	} else {
		h.word(0)
	}
}

func (h *Hash) status(s *raft.Status) {
	h.words(uint64(s.State), uint64(s.Term), uint64(s.VotedFor), uint64(s.LeaderID), uint64(s.CommitIndex),
		uint64(s.LastApplied), uint64(s.SavedIndex), uint64(s.LastIndex), uint64(s.LastTerm),
		uint64(s.FirstIndex), uint64(s.SnapshotIndex), uint64(s.ConfigurationIndex),
		uint64(s.Round), uint64(s.LeaseRound), uint64(s.LeaseIndex), uint64(s.TransferTo))
}

// Each kind of event and message begins with a number of its own.
func (h *Hash) event(event raft.Event) {
	switch ev := event.(type) {
	case nil:
		h.word(0)
	case raft.ElectionTimeout:
		h.words(1, uint64(ev.Number))
	case raft.HeartbeatTimeout:
		h.words(2, uint64(ev.Number))
	case raft.LeaderContactTimeout:
		h.words(3, uint64(ev.Number))
	case raft.QuorumCheckTimeout:
		h.words(4, uint64(ev.Number))
	case raft.Submit:
		h.words(5, uint64(len(ev.Commands)))
		for _, c := range ev.Commands {
			h.bytes(c)
		}
	case raft.Saved:
		h.words(6, uint64(ev.Index), uint64(ev.Term))
	case raft.Applied:
		h.words(7, uint64(ev.Index))
	case raft.Message:
		h.word(8)
		h.message(&ev)
	case raft.TransferTimeout:
		h.words(10, uint64(ev.Number))
	case raft.Read:
		h.words(11, uint64(len(ev.Requests)))
		for _, id := range ev.Requests {
			h.word(uint64(id))
		}
	case raft.ChangeConfiguration:
		h.words(12, uint64(ev.Request), uint64(ev.Expected))
		h.configuration(&ev.Next)
	case raft.TransferLeadership:
		h.words(13, uint64(ev.Request), uint64(ev.To))
	case raft.SnapshotStored:
		h.word(14)
		h.snapshot(&ev.Snapshot)
	case raft.SnapshotDamaged:
		h.word(15)
		h.snapshot(&ev.Snapshot)
	default:
		h.word(9)
	}
}

func (h *Hash) configuration(c *raft.Configuration) {
	for _, ids := range [...][]raft.ServerID{c.Voters, c.OldVoters, c.Learners} {
		h.word(uint64(len(ids)))
		for _, id := range ids {
			h.word(uint64(id))
		}
	}
	h.word(uint64(len(c.Addresses)))
	for _, a := range c.Addresses {
		h.words(uint64(a.ID), uint64(a.Since))
		h.text(a.Addr)
	}
}

func (h *Hash) snapshot(s *raft.Snapshot) {
	h.words(uint64(s.Index), uint64(s.Term), uint64(s.ConfigurationIndex), s.Size, uint64(s.Checksum))
	h.configuration(&s.Configuration)
}

func (h *Hash) message(m *raft.Message) {
	h.words(uint64(m.Cluster), uint64(m.From), uint64(m.To))
	switch b := m.Body.(type) {
	case nil:
		h.word(0)
	case raft.RequestVoteArgs:
		h.words(1, uint64(b.Term), uint64(b.CandidateID), uint64(b.LastLogIndex), uint64(b.LastLogTerm))
		h.flag(b.Transfer)
	case raft.RequestVoteReply:
		h.words(2, uint64(b.Term), uint64(b.AskedTerm))
		h.flag(b.VoteGranted)
	case raft.AppendEntriesArgs:
		h.words(3, uint64(b.Term), uint64(b.LeaderID), uint64(b.PrevLogIndex), uint64(b.PrevLogTerm), uint64(b.LeaderCommit), uint64(b.Round))
		h.entries(b.Entries)
	case raft.AppendEntriesReply:
		h.words(4, uint64(b.Term), uint64(b.AskedTerm), uint64(b.PrevLogIndex), uint64(b.MatchIndex), uint64(b.ConflictIndex), uint64(b.ConflictTerm), uint64(b.Round))
		h.flag(b.Success)
	case raft.PreVoteArgs:
		h.words(5, uint64(b.Term), uint64(b.CandidateID), b.Round, uint64(b.LastLogIndex), uint64(b.LastLogTerm))
	case raft.PreVoteReply:
		h.words(6, uint64(b.Term), uint64(b.AskedTerm), b.Round)
		h.flag(b.VoteGranted)
	case raft.InstallSnapshotArgs:
		h.words(8, uint64(b.Term), uint64(b.LeaderID), b.Offset, b.Length, uint64(b.Round))
		h.snapshot(&b.Snapshot)
		h.bytes(b.Data)
	case raft.InstallSnapshotReply:
		h.words(9, uint64(b.Term), uint64(b.AskedTerm), uint64(b.SnapshotIndex), b.NextOffset, uint64(b.MatchIndex), uint64(b.Round))
	case raft.TimeoutNowArgs:
		h.words(10, uint64(b.Term), uint64(b.LeaderID), uint64(b.Round))
	default:
		h.words(7, uint64(b.SenderTerm()))
	}
}

func (h *Hash) entries(entries []raft.LogEntry) {
	h.word(uint64(len(entries)))
	for i := range entries {
		h.words(uint64(entries[i].Term), uint64(entries[i].Kind))
		h.bytes(entries[i].Command)
	}
}

func (h *Hash) effects(e *raft.Effects) {
	h.words(uint64(len(e.Submitted)), uint64(len(e.Answers)), uint64(len(e.Send)), uint64(len(e.Receive)),
		uint64(len(e.SendAfter)), uint64(len(e.Commit)), uint64(e.Compact))
	for _, s := range e.Submitted {
		h.words(uint64(s.FirstIndex), uint64(s.Term), refusal(s.Err))
	}
	for _, a := range e.Answers {
		h.words(uint64(a.Request), uint64(a.Index), refusal(a.Err))
	}
	for i := range e.Send {
		h.message(&e.Send[i])
	}
	h.words(uint64(e.Save.CurrentTerm), uint64(e.Save.VotedFor), uint64(e.Save.FirstIndex),
		uint64(e.Save.Reset.Index), uint64(e.Save.Reset.Term))
	h.entries(e.Save.Entries)
	for i := range e.Receive {
		h.snapshot(&e.Receive[i].Snapshot)
		h.word(e.Receive[i].Offset)
		h.bytes(e.Receive[i].Data)
	}
	for i := range e.SendAfter {
		h.message(&e.SendAfter[i])
	}
	for _, c := range e.Commit {
		h.words(uint64(c.Index), uint64(c.Term), uint64(c.Kind))
		h.bytes(c.Command)
	}
	for _, t := range e.Timers {
		h.words(uint64(t.Action), uint64(t.Number))
	}
}

// refusals are the errors that the core gives, but for a *raft.NotLeaderError.
var refusals = [...]error{raft.ErrBusy, raft.ErrTransferring, raft.ErrTransferAborted, raft.ErrNotVoter,
	raft.ErrChanged, raft.ErrChanging, raft.ErrNotCaughtUp, raft.ErrConfig}

func refusal(err error) uint64 {
	if err == nil {
		return 0
	}
	for n, known := range refusals {
		if errors.Is(err, known) {
			return uint64(n) + 2
		}
	}
	return 1
}
