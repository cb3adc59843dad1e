package invariant

import (
	"slices"

	"raftkv/raft"
)

// SnapshotStored is called when a snapshot is durable on a server's disk, its own
// or a received one, before the server steps raft.SnapshotStored.
func (c *Checker) SnapshotStored(id raft.ServerID, snapshot raft.Snapshot) error {
	s, err := c.server(id)
	if err != nil {
		return err
	}
	if err := c.checkStored(s, snapshot); err != nil {
		return err
	}
	s.disk.snapshot = max(s.disk.snapshot, snapshot.Index)
	return nil
}

// checkStored judges what a snapshot says of itself. Equal states have equal
// bytes, so two snapshots up to the same index are the same.
func (c *Checker) checkStored(s *server, snapshot raft.Snapshot) error {
	i := snapshot.Index
	if i == 0 {
		return nil
	}
	if t := c.committedTerm(i); t != snapshot.Term {
		return s.violates(Snapshots, "has a snapshot up to index %d of term %d, which was committed with term %d", i, snapshot.Term, t)
	}
	changes := c.changesUpTo(i)
	last := changes[len(changes)-1]
	if last.index != snapshot.ConfigurationIndex || !last.Equal(snapshot.Configuration) {
		return s.violates(Snapshots, "has a snapshot up to index %d with the configuration %v of index %d, but it is %v of index %d",
			i, snapshot.Configuration, snapshot.ConfigurationIndex, last.Configuration, last.index)
	}
	first, seen := c.snapshots[i]
	if !seen {
		c.snapshots[i] = snapshot
	} else if first.Size != snapshot.Size || first.Checksum != snapshot.Checksum {
		return s.violates(Snapshots, "has a snapshot up to index %d of %d bytes with checksum %x, another server had %d and %x",
			i, snapshot.Size, snapshot.Checksum, first.Size, first.Checksum)
	}
	return nil
}

// checkBeginning demands that a log is only cut short where a durable snapshot
// stands for what was there and the state machine has it.
func (s *server) checkBeginning(before, now raft.Status, effects raft.Effects) error {
	before.FirstIndex, now.FirstIndex = max(before.FirstIndex, 1), max(now.FirstIndex, 1) // a core without snapshots says 0
	switch {
	case now.FirstIndex < before.FirstIndex:
		return s.violates(Monotony, "has a log from index %d on, which began at %d", now.FirstIndex, before.FirstIndex)
	case now.SnapshotIndex > s.disk.snapshot:
		return s.violates(Durability, "relies on a snapshot up to index %d, but it has one up to %d", now.SnapshotIndex, s.disk.snapshot)
	case now.FirstIndex > now.SnapshotIndex+1:
		return s.violates(Snapshots, "has a log from index %d on, but its snapshot ends at %d", now.FirstIndex, now.SnapshotIndex)
	case now.FirstIndex > before.FirstIndex && effects.Save.Reset.Index == 0 && now.FirstIndex > now.LastApplied+1:
		return s.violates(Snapshots, "has dropped its log before index %d, but it has applied only %d", now.FirstIndex, now.LastApplied)
	case effects.Compact != 0 && effects.Compact >= now.FirstIndex:
		return s.violates(Snapshots, "lets its disk forget index %d, but its log begins at %d", effects.Compact, now.FirstIndex)
	}
	return nil
}

// checkReset is checkLog for a log that begins anew behind a snapshot. All that
// it held is gone: then nothing of it may have been committed behind the
// snapshot, and nothing acknowledged.
func (c *Checker) checkReset(s *server, now raft.Status, save raft.Save) (changed raft.Index, err error) {
	at := save.Reset
	if c.committedTerm(at.Index) != at.Term {
		return 0, s.violates(Snapshots, "begins its log behind index %d of term %d, which was committed with term %d", at.Index, at.Term, c.committedTerm(at.Index))
	}
	old := s.log
	if old.has(at.Index, at.Term) {
		return 0, s.violates(Snapshots, "drops its log for a snapshot up to index %d, which the log agrees with", at.Index)
	}
	s.log = slices.Clone(c.committed[:at.Index+1])
	changed = min(old.last(), at.Index) + 1
	for i := raft.Index(1); i < changed; i++ {
		if old[i] != s.log[i] {
			changed = i
		}
	}
	for i := changed; i <= old.last(); i++ {
		if !s.log.has(i, old[i]) && old.has(i, c.committedTerm(i)) && c.mustKeep(s, i) {
			return 0, s.violates(LeaderCompleteness, "drops index %d, which is committed, for a snapshot up to %d", i, at.Index)
		}
	}
	s.configurations = c.changesUpTo(at.Index)
	return changed, s.checkEnd(now)
}

// checkStart returns what is known of a log before the entries that a server has
// found on its disk.
func (c *Checker) checkStart(s *server, saved raft.PersistentState) (terms, error) {
	start := saved.Start
	if start.Index == 0 {
		return make(terms, 1, len(saved.Entries)+1), nil
	}
	last := start.Index + raft.Index(len(saved.Entries))
	if start.Index > saved.Snapshot.Index || saved.Snapshot.Index > last {
		return nil, s.violates(Snapshots, "starts with a log from %d to %d and a snapshot up to %d", start.Index+1, last, saved.Snapshot.Index)
	}
	if t := c.committedTerm(start.Index); t != start.Term {
		return nil, s.violates(Snapshots, "starts with a log behind index %d of term %d, which was committed with term %d", start.Index, start.Term, t)
	}
	return slices.Clone(c.committed[:start.Index+1]), nil
}

// checkPartSent demands that a leader sends a snapshot which it has. It may be an
// older one than its latest, because the follower is half way through it.
func (c *Checker) checkPartSent(s *server, args raft.InstallSnapshotArgs) error {
	known := c.snapshots[args.Snapshot.Index]
	switch {
	case s.status.State != raft.Leader:
		return s.violates(Truth, "sends InstallSnapshot as %s of term %d", s.status.State, args.Term)
	case args.Snapshot.Index == 0 || args.Snapshot.Index > s.disk.snapshot ||
		known.Size != args.Snapshot.Size || known.Checksum != args.Snapshot.Checksum || known.Term != args.Snapshot.Term:
		return s.violates(Truth, "offers a snapshot up to index %d of %d bytes, but has another", args.Snapshot.Index, args.Snapshot.Size)
	case args.Offset+args.Length > args.Snapshot.Size:
		return s.violates(Truth, "sends bytes %d to %d of a snapshot of %d", args.Offset, args.Offset+args.Length, args.Snapshot.Size)
	}
	return nil
}
