package sim

import (
	"bytes"
	"errors"
	"time"

	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// Snapshots are taken, sent and installed as kvservice/snapshots.go and
// raft/server do it. Taking one is work in the background: it lasts, the server
// goes on meanwhile, and a crash may come in between.

// taking is a snapshot that is being written.
type taking struct {
	writer storage.SnapshotWriter
	left   []byte // what has not been written
}

// write writes n more bytes.
func (t *taking) write(n int) error {
	_, err := t.writer.Write(t.left[:n])
	t.left = t.left[n:]
	return err
}

// goOn writes until the power goes off.
func (t *taking) goOn() {
	if t.write(len(t.left)) == nil {
		_, _ = t.writer.Commit()
	}
}

// snapshotIfDue is called after each entry.
func (s *simulation) snapshotIfDue(n *node, e raft.CommitEntry) {
	v := &n.service
	v.since += len(e.Command)
	if s.plan.snapshotBytes > 0 && n.taking == nil && v.since >= max(s.plan.snapshotBytes, v.snapshotSize/4) {
		s.takeSnapshot(n)
	}
}

// takeSnapshot begins to write the present state of a server's machine.
func (s *simulation) takeSnapshot(n *node) {
	v := &n.service
	if n.taking != nil || len(v.configuration.Voters) == 0 || v.machine.AppliedIndex() == 0 {
		return
	}
	v.since = 0
	w, err := n.disk.storage.CreateSnapshot(raft.Snapshot{
		Index: v.machine.AppliedIndex(), Term: v.appliedTerm,
		Configuration: v.configuration, ConfigurationIndex: v.configurationIndex,
	})
	if err != nil {
		if !errors.Is(err, storage.ErrOlderSnapshot) {
			s.snapshotFailed(n, err)
		}
		return
	}
	var b bytes.Buffer
	if err := v.machine.Clone().WriteSnapshot(&b); err != nil {
		s.fail("snapshot", "server %d cannot write its state: %v", n.id, err)
		return
	}
	if s.config.spoil != nil {
		spoiled := s.config.spoil(b.Bytes())
		b.Reset()
		b.Write(spoiled)
	}
	if _, known := s.states[v.machine.AppliedIndex()]; !known {
		s.states[v.machine.AppliedIndex()] = v.machine.Hash()
	}
	t := &taking{writer: w, left: b.Bytes()}
	n.taking, v.snapshotSize = t, b.Len()
	lasts := s.snapshotTime(n)
	s.whileTaking(n, t, lasts/2, func() error { return t.write(len(t.left) / 2) })
	s.whileTaking(n, t, lasts, func() error {
		if err := t.write(len(t.left)); err != nil {
			return err
		}
		stored, err := w.Commit()
		if errors.Is(err, storage.ErrOlderSnapshot) {
			n.taking = nil
			s.count(OlderSnapshot)
			return nil
		}
		if err != nil {
			return err
		}
		n.taking = nil
		s.count(SnapshotTaken)
		if n.wiped == nil && s.check(s.checker.SnapshotStored(n.id, stored)) {
			return nil
		}
		s.arrive(n, input{event: raft.SnapshotStored{Snapshot: stored}})
		return nil
	})
}

// whileTaking plans a piece of the work at a snapshot.
func (s *simulation) whileTaking(n *node, t *taking, after time.Duration, do func() error) {
	s.after(after, func() {
		switch {
		case !n.up || n.taking != t:
		case n.pausedUntil > s.now:
			s.whileTaking(n, t, n.pausedUntil-s.now, do)
		default:
			if err := do(); err != nil {
				t.writer.Abort()
				n.taking = nil
				s.snapshotFailed(n, err)
			}
		}
	})
}

// snapshotFailed is no more than that: the log is longer until the next one.
func (s *simulation) snapshotFailed(n *node, err error) {
	if n.disk.files == nil {
		s.fail("snapshot", "server %d: %v", n.id, err)
		return
	}
	s.count(SnapshotFailed)
}

func (s *simulation) snapshotTime(n *node) time.Duration {
	if s.healed {
		return min(s.plan.snapshotTime, time.Millisecond)
	}
	return n.disk.random.around(s.plan.snapshotTime)
}

// fillIn adds their bytes to the parts of snapshots. A part that cannot be read is
// not sent: the snapshot has been replaced by a newer one.
func (s *simulation) fillIn(n *node, messages []raft.Message) []raft.Message {
	filled := messages[:0]
	for _, m := range messages {
		if args, ok := m.Body.(raft.InstallSnapshotArgs); ok && args.Length > 0 {
			args.Data = make([]byte, args.Length)
			if err := n.disk.storage.ReadSnapshot(args.Snapshot, args.Offset, args.Data); err != nil {
				s.count(PartGone)
				continue
			}
			if s.decide(spoilPart, int(m.From), int(m.To), n.disk.random.chance(s.plan.spoiledParts) && !s.healed) {
				args.Data[0] ^= 1
			}
			m.Body = args
		}
		filled = append(filled, m)
	}
	return filled
}

// receive stores a part of a snapshot and returns the event that tells of the
// last one.
func (s *simulation) receive(n *node, chunk raft.Chunk) (raft.Event, error) {
	if chunk.Offset == 0 && chunk.Snapshot.Index == n.received && n.disk.lives > 1 {
		s.count(ReceivedAnew)
	}
	n.received = chunk.Snapshot.Index
	err := n.disk.storage.Receive(chunk)
	switch {
	case errors.Is(err, storage.ErrDamagedSnapshot):
		s.count(SnapshotSpoiled)
		return raft.SnapshotDamaged{Snapshot: chunk.Snapshot}, nil
	case err != nil:
		return nil, err
	case chunk.Last():
		n.received = 0
		if n.wiped == nil {
			s.check(s.checker.SnapshotStored(n.id, chunk.Snapshot))
		}
		return raft.SnapshotStored{Snapshot: chunk.Snapshot}, nil
	}
	return nil, nil
}

// restore replaces the state by that of a snapshot, and demands that it is the
// one that was written.
func (s *simulation) restore(n *node, e raft.CommitEntry) {
	data, err := n.disk.storage.OpenSnapshot(e.Index)
	if err != nil {
		s.fail("snapshot", "server %d cannot open the snapshot up to index %d: %v", n.id, e.Index, err)
		return
	}
	defer data.Close()
	m, err := machine.ReadSnapshot(data)
	switch v := &n.service; {
	case err != nil:
		s.fail("snapshot", "server %d cannot read the snapshot up to index %d: %v", n.id, e.Index, err)
	case m.AppliedIndex() != e.Index:
		s.fail("snapshot", "server %d has a snapshot up to index %d in which %d are applied", n.id, e.Index, m.AppliedIndex())
	case m.Hash() != s.states[e.Index] && s.config.spoil == nil:
		s.fail("state", "server %d has another state in its snapshot up to index %d than was written", n.id, e.Index)
	default:
		v.machine, v.since, v.appliedTerm = m, 0, e.Term
		v.configuration, v.configurationIndex = e.Installed.Configuration, e.Installed.ConfigurationIndex
		s.releaseReaders(n)
	}
}

// countSnapshots looks for what may befall snapshots in one step.
func (s *simulation) countSnapshots(n *node, before *raft.Status) {
	r := &s.record
	switch ev := r.Event.(type) {
	case raft.SnapshotStored:
		switch at := ev.Snapshot.Index; {
		case at <= before.SnapshotIndex:
			s.count(OlderSnapshot)
		case r.Effects.Save.Reset.Index != 0:
			s.count(SnapshotInstalled)
			if before.LastIndex > 0 {
				s.count(LogReset)
			}
			if before.LastIndex >= at {
				s.count(TailDropped) // its entry there had another term
			}
			if raft.Index(len(s.applied)) > at+1 {
				s.count(InstalledUnderWrites)
			}
		}
	case raft.Message:
		if args, ok := ev.Body.(raft.InstallSnapshotArgs); ok && before.CommitIndex < args.Snapshot.Index &&
			n.status.CommitIndex >= args.Snapshot.Index && before.LastIndex > args.Snapshot.Index {
			s.count(SuffixKept)
		}
	}
	if r.Effects.Compact != 0 {
		s.count(LogCompacted)
	}
}

// askForSnapshot is an operator's request.
func (s *simulation) askForSnapshot(n *node) {
	s.because("server %d is asked for a snapshot", n.id)
	if n.up && s.plan.clients > 0 {
		s.note(n, "is asked for a snapshot")
		s.takeSnapshot(n)
	}
}
