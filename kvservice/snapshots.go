package kvservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// ErrNothingToSnapshot reports that nothing was applied yet from which another
// server could go on: no entry, or none that says who takes part.
var ErrNothingToSnapshot = errors.New("nothing has been applied yet that a snapshot could hold")

// snapshots says when the next snapshot is due. The service's lock guards it.
type snapshots struct {
	running bool
	since   int    // bytes of the commands applied since the last one
	size    uint64 // bytes of the last one
}

// due reports whether it is time. A snapshot costs as much as the store is
// large, so a large store waits for more to have changed.
func (n *snapshots) due(least int) bool {
	return !n.running && n.since >= max(least, int(n.size/8))
}

// restore replaces the state by that of a snapshot that was received from the
// leader, or found at the start.
func (s *KVService) restore(entry raft.CommitEntry) error {
	installed := entry.Installed
	defer installed.Data.Close()
	m, err := machine.ReadSnapshot(installed.Data)
	if err != nil {
		return err
	}
	if m.AppliedIndex() != entry.Index {
		return fmt.Errorf("the snapshot of index %d holds the state of index %d", entry.Index, m.AppliedIndex())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine = m
	s.snapshots.since = 0
	s.applied = applied{raft.LogPosition{Index: entry.Index, Term: entry.Term}, installed.Configuration, installed.ConfigurationIndex}
	s.config.Logger.Info("state taken from a snapshot", "event", "snapshot_restored", "raft.term", uint64(entry.Term), "raft.commit_index", uint64(entry.Index))
	s.releaseReaders()
	return s.checkSettings()
}

// TakeSnapshot stores the state after the last applied entry and lets the log
// be cut short behind it. It returns the index and how many bytes were written.
// Applying goes on meanwhile: the copy of the state takes no time, however much
// there is. It waits while another snapshot is being taken. After an error
// nothing has changed.
func (s *KVService) TakeSnapshot(ctx context.Context) (raft.Index, uint64, error) {
	select {
	case s.taking <- struct{}{}:
		defer func() { <-s.taking }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	s.mu.Lock()
	state, at := s.machine.Clone(), s.applied
	s.snapshots.running, s.snapshots.since = true, 0
	s.mu.Unlock()

	began := time.Now()
	var written counter
	err := ErrNothingToSnapshot
	if len(at.configuration.Voters) > 0 && at.Index > 0 {
		err = s.raft.TakeSnapshot(raft.Snapshot{
			Index:              at.Index,
			Term:               at.Term,
			Configuration:      at.configuration,
			ConfigurationIndex: at.configurationIndex,
		}, func(w io.Writer) error {
			return state.HandOver(io.MultiWriter(untilStop{s, w}, &written))
		})
	}
	if err == nil {
		s.metrics.snapshotSeconds.Observe(time.Since(began).Seconds())
		s.config.Logger.Info("snapshot taken", "event", "snapshot", "raft.commit_index", uint64(at.Index), "bytes", uint64(written), "took", time.Since(began))
	}
	s.mu.Lock()
	s.snapshots.running = false
	if err == nil {
		s.snapshots.size = uint64(written)
	}
	s.mu.Unlock()
	return at.Index, uint64(written), err
}

// snapshotIfDue is called after each entry, with the lock held.
func (s *KVService) snapshotIfDue(entry raft.CommitEntry) {
	s.snapshots.since += len(entry.Command)
	if !s.snapshots.due(s.config.SnapshotBytes) {
		return
	}
	s.snapshots.running = true
	s.background.Go(func() {
		_, _, err := s.TakeSnapshot(context.Background())
		if err != nil && !errors.Is(err, ErrNothingToSnapshot) && !errors.Is(err, errStopping) {
			s.config.Logger.Warn("no snapshot was taken; the log grows until one is", "err", err)
		}
	})
}

// errStopping ends a snapshot that is being written when the server stops: it
// could not be used by then, and a large one takes long.
var errStopping = errors.New("the server is stopping")

// untilStop writes until the server stops.
type untilStop struct {
	s *KVService
	io.Writer
}

func (w untilStop) Write(b []byte) (int, error) {
	if w.s.stopping.Load() {
		return 0, errStopping
	}
	return w.Writer.Write(b)
}

// counter counts the bytes that go by.
type counter uint64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
