package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"raftkv/kvservice"
	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/server"
	"raftkv/raft/storage"
)

// readDirectory carries out the whole log in the data directory of a server that
// does not run, and returns the state at its end. No entry that was committed
// and stored there is missing; the last ones may never have been committed.
func readDirectory(dir string) (m *machine.Machine, header kvservice.SnapshotHeader, err error) {
	identity, err := storage.ReadIdentity(dir, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, header, fmt.Errorf("%s is no data directory: no server was ever started there", dir)
	}
	if err != nil {
		return nil, header, err
	}
	s, err := storage.Open(dir, storage.Options{Identity: identity})
	if err != nil {
		return nil, header, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	state, err := s.Load()
	if err != nil {
		return nil, header, err
	}
	m, at := machine.New(), raft.LogPosition{Index: state.Snapshot.Index, Term: state.Snapshot.Term}
	configuration, configurationIndex := server.FirstConfiguration(identity.Members), raft.Index(0)
	if at.Index > 0 {
		configuration, configurationIndex = state.Snapshot.Configuration, state.Snapshot.ConfigurationIndex
		if m, err = readStored(s, at.Index); err != nil {
			return nil, header, err
		}
	}
	for i, e := range state.Entries {
		index := state.Start.Index + 1 + raft.Index(i)
		if index <= at.Index {
			continue // in the snapshot
		}
		if _, err := m.Apply(raft.CommitEntry{Index: index, Term: e.Term, Kind: e.Kind, Command: e.Command}); err != nil {
			return nil, header, fmt.Errorf("entry %d: %w", index, err)
		}
		if e.Kind == raft.EntryConfiguration {
			if configuration, err = raft.DecodeConfiguration(e.Command); err != nil {
				return nil, header, fmt.Errorf("entry %d: %w", index, err)
			}
			configurationIndex = index
		}
		at = raft.LogPosition{Index: index, Term: e.Term}
	}
	if at.Index == 0 {
		return nil, header, fmt.Errorf("the log in %s is empty, so there is nothing to save", dir)
	}
	return m, kvservice.SnapshotHeader{
		Cluster:       fmt.Sprintf("%016x", uint64(identity.Cluster)),
		ClusterName:   identity.ClusterName,
		Server:        uint64(identity.Server),
		Index:         uint64(at.Index),
		Term:          uint64(at.Term),
		Configuration: kvservice.ConfigurationOf(configuration, configurationIndex),
	}, nil
}

func readStored(s storage.Storage, index raft.Index) (*machine.Machine, error) {
	bytes, err := s.OpenSnapshot(index)
	if err != nil {
		return nil, err
	}
	defer bytes.Close()
	return machine.ReadSnapshot(bytes)
}

// saveDirectory writes what a data directory holds to a snapshot file.
func saveDirectory(dir, path string) (*content, error) {
	m, header, err := readDirectory(dir)
	if err != nil {
		return nil, refused("nothing was saved: %v", err)
	}
	return saveFile(path, func(w io.Writer) error { return kvservice.WriteSnapshotFile(w, header, m.WriteSnapshot) })
}
