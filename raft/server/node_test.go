package server

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fortytw2/leaktest"
	"github.com/stretchr/testify/require"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// openDrained opens a node of whose commits nobody wants to know.
func openDrained(t *testing.T, config NodeConfig) *Node {
	commits := make(chan raft.CommitEntry)
	config.CommitChan = commits
	n, err := Open(config)
	require.NoError(t, err)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for e := range commits {
			if e.Kind == raft.EntrySnapshot {
				e.Installed.Data.Close()
			}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, n.Stop())
		<-drained
	})
	return n
}

// openAlone opens a node that is a whole cluster, and waits until it leads.
func openAlone(t *testing.T, dir string, log io.Writer, observeSave func(time.Duration)) *Node {
	leads := make(chan struct{})
	n := openDrained(t, NodeConfig{
		Identity: NewIdentity("alone", 1, []Member{{ID: 1, Addr: "127.0.0.1:1"}}),
		Dir:      dir,
		Addr:     "127.0.0.1:0",
		Observe: func(s raft.Status) {
			if s.State == raft.Leader {
				close(leads)
			}
		},
		ObserveSave: observeSave,
		Logger:      slog.New(slog.NewTextHandler(log, nil)),
	})
	<-leads
	return n
}

// takeSnapshotAt puts a command into the log and takes a snapshot behind it.
func takeSnapshotAt(t *testing.T, n *Node, text string) {
	index, term, err := n.Submit(t.Context(), []byte(text))
	require.NoError(t, err)
	for n.Status().LastApplied < index { // the loop is told when the entry was taken
		require.NoError(t, t.Context().Err())
		_, err := n.ReadIndex(t.Context())
		require.NoError(t, err)
	}
	c, at := n.Configuration()
	require.NoError(t, n.TakeSnapshot(raft.Snapshot{Index: index, Term: term, Configuration: c, ConfigurationIndex: at},
		func(w io.Writer) error { return writeState(w, []string{text}) }))
}

// What the storage could do without is told once, in the log of the program: the
// next start finds it again only if it is still there.
func TestDamageThatDoesNoHarmIsLogged(t *testing.T) {
	defer leaktest.Check(t)()
	dir := t.TempDir()
	t.Run("first run", func(t *testing.T) {
		n := openAlone(t, dir, io.Discard, nil)
		takeSnapshotAt(t, n, "one")
		takeSnapshotAt(t, n, "two")
	})
	files, err := filepath.Glob(filepath.Join(dir, "snapshot-*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	newest := files[1]
	data, err := os.ReadFile(newest)
	require.NoError(t, err)
	data[len(data)-1] ^= 0xff
	require.NoError(t, os.WriteFile(newest, data, 0o600))

	var log bytes.Buffer
	t.Run("second run", func(t *testing.T) { openAlone(t, dir, &log, nil) })
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), filepath.Base(newest))
}

func TestWritesAreTimedAndFilesMeasured(t *testing.T) {
	defer leaktest.Check(t)()
	saves := 0
	dir := t.TempDir()
	var n *Node
	t.Run("run", func(t *testing.T) {
		n = openAlone(t, dir, io.Discard, func(took time.Duration) {
			require.Positive(t, took)
			saves++
		})
		_, none := n.DiskBytes()
		require.Zero(t, none)
		takeSnapshotAt(t, n, "one")
		log, snapshots := n.DiskBytes()
		require.Positive(t, log)
		require.Positive(t, snapshots)
		require.False(t, n.Connected(2))
	})
	require.GreaterOrEqual(t, saves, 2, "the vote and the entries")
}

// hangingDisk is a storage whose writes wait until hang is closed.
type hangingDisk struct {
	storage.Storage
	hang chan struct{}
}

func (d *hangingDisk) Save(s raft.Save) error {
	<-d.hang
	return d.Storage.Save(s)
}

func TestBusyWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &hangingDisk{storage.NewMapStorage(), make(chan struct{})}
		s := newCluster(t, disk).nodes[1]
		synctest.Wait()
		require.Zero(t, s.Busy(), "it waits for its election timer")
		<-time.After(time.Minute)
		require.Greater(t, s.Busy(), 50*time.Second)
		close(disk.hang)
		synctest.Wait()
		require.Zero(t, s.Busy())
	})
}
