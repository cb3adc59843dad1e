package storage_test

import (
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// twin is the slow and obvious storage that the others are compared with. It
// forgets nothing but what a Reset drops.
type twin struct {
	term      raft.Term
	vote      raft.ServerID
	start     raft.LogPosition
	log       []raft.LogEntry // behind start
	snapshots []raft.Snapshot // oldest first
	mayForget raft.Index      // the highest index up to which Compact may have forgotten
}

func (w twin) last() raft.Index { return w.start.Index + raft.Index(len(w.log)) }

func (w twin) newest() raft.Snapshot {
	if len(w.snapshots) == 0 {
		return raft.Snapshot{}
	}
	return w.snapshots[len(w.snapshots)-1]
}

func (w twin) saved(s raft.Save) twin {
	w.term, w.vote = s.CurrentTerm, s.VotedFor
	if s.Reset.Index != 0 {
		w.start, w.log = s.Reset, nil
	}
	if s.FirstIndex != 0 {
		w.log = slices.Concat(w.log[:s.FirstIndex-w.start.Index-1], s.Entries)
	}
	return w
}

func (w twin) stored(s raft.Snapshot) twin {
	if s.Index > w.newest().Index {
		w.snapshots = append(slices.Clip(w.snapshots), s)
	}
	return w
}

func (w twin) compacted(upTo raft.Index) twin {
	if n := len(w.snapshots); n >= 2 {
		w.mayForget = max(w.mayForget, min(upTo, w.snapshots[n-2].Index))
	}
	return w
}

// restarted is what a server must find (pitfall SN-11).
func (w twin) restarted() twin {
	s := w.newest()
	if s.Index == 0 {
		return w
	}
	if n := s.Index - w.start.Index; s.Index > w.last() || (n > 0 && w.log[n-1].Term != s.Term) || (n == 0 && w.start.Term != s.Term) {
		w.start, w.log = raft.LogPosition{Index: s.Index, Term: s.Term}, nil
	}
	return w
}

// check says in what a server's state differs from the twin's; "" if in nothing.
func (w twin) check(state raft.PersistentState) string {
	start := state.Start.Index
	switch {
	case state.CurrentTerm != w.term || state.VotedFor != w.vote:
		return "term or vote"
	case !same(state.Snapshot, w.newest()):
		return "snapshot"
	case start < w.start.Index || start > max(w.start.Index, w.mayForget):
		return "the log begins elsewhere"
	case start+raft.Index(len(state.Entries)) != w.last():
		return "the log ends elsewhere"
	}
	term := w.start.Term
	if n := start - w.start.Index; n > 0 {
		term = w.log[n-1].Term
	}
	if state.Start.Term != term {
		return "the term before the log"
	}
	for i, e := range state.Entries {
		if want := w.log[start-w.start.Index+raft.Index(i)]; e.Term != want.Term || string(e.Command) != string(want.Command) {
			return "an entry"
		}
	}
	return ""
}

func same(a, b raft.Snapshot) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Size == b.Size && a.Checksum == b.Checksum &&
		a.ConfigurationIndex == b.ConfigurationIndex && a.Configuration.Equal(b.Configuration)
}

// cutShort returns everything that a crash within a Save may leave.
func (w twin) cutShort(s raft.Save) []twin {
	all := []twin{w, w.saved(raft.Save{CurrentTerm: s.CurrentTerm, VotedFor: s.VotedFor})}
	if s.Reset.Index != 0 {
		all = append(all, w.saved(raft.Save{CurrentTerm: s.CurrentTerm, VotedFor: s.VotedFor, Reset: s.Reset}))
	}
	for n := range s.Entries {
		part := s
		part.Entries = s.Entries[:n+1]
		all = append(all, w.saved(part))
	}
	return all
}

// requireFound makes sure that a server has found one of the possible states,
// with the bytes of the last two snapshots, and returns that one.
func requireFound(t require.TestingT, s storage.Storage, possible []twin) twin {
	state := load(t, s)
	var found *twin
	var why []string
	for _, w := range possible {
		w = w.restarted()
		difference := w.check(state)
		if difference == "" {
			found = &w
			break
		}
		why = append(why, difference)
	}
	require.NotNil(t, found, "found %+v, expected one of %+v, but: %v", state, possible, why)
	found.start, found.log = state.Start, state.Entries // forgotten for good
	found.mayForget = 0
	for _, snapshot := range found.snapshots[max(0, len(found.snapshots)-2):] {
		r, err := s.OpenSnapshot(snapshot.Index)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, stateAt(snapshot.Index, int(snapshot.Size)), data)
	}
	return *found
}

// user does at random what a server does with its storage, with a twin beside it.
type user struct {
	disk  *simdisk.Disk // nil: a storage in memory
	s     storage.Storage
	model twin

	writer  storage.SnapshotWriter
	taking  raft.Snapshot
	written int

	incoming raft.Snapshot
	received int

	seen map[string]int // what has happened, for the coverage
}

func (u *user) restart(t require.TestingT, possible ...twin) {
	u.writer, u.received = nil, 0
	if u.disk != nil {
		u.disk.Kill()
		for {
			files, err := storage.Open(dir, options(u.disk))
			if err == nil {
				u.s = files
				break
			}
			var corrupt *storage.CorruptError
			require.NotErrorAs(t, err, &corrupt)
			u.seen["a start was cut short"]++
			u.disk.Crash()
		}
	}
	u.model = requireFound(t, u.s, possible)
}

// failed is a crash within an operation that may have left any of these.
func (u *user) failed(t *rapid.T, err error, possible ...twin) {
	require.Equal(t, err, u.s.Save(raft.Save{CurrentTerm: 99}), "every later Save returns the first error")
	if rapid.Bool().Draw(t, "power") {
		u.disk.Crash()
	}
	u.restart(t, possible...)
}

func (u *user) save(t *rapid.T) {
	s := raft.Save{
		CurrentTerm: u.model.term + raft.Term(rapid.IntRange(0, 2).Draw(t, "terms on")),
		VotedFor:    raft.ServerID(rapid.IntRange(0, 3).Draw(t, "vote")),
	}
	s.CurrentTerm = max(s.CurrentTerm, 1)
	first, last := max(u.model.start.Index, u.model.mayForget)+1, u.model.last()
	if newest := u.model.newest(); newest.Index != 0 && rapid.IntRange(0, 3).Draw(t, "reset") == 0 {
		s.Reset = raft.LogPosition{Index: newest.Index, Term: newest.Term}
		first, last = newest.Index+1, newest.Index
	}
	if n := rapid.IntRange(0, 5).Draw(t, "entries"); n > 0 && first <= last+1 {
		s.FirstIndex = first + raft.Index(rapid.IntRange(0, int(last+1-first)).Draw(t, "first"))
		if rapid.IntRange(0, 2).Draw(t, "append") > 0 {
			s.FirstIndex = last + 1
		}
		for range n {
			s.Entries = append(s.Entries, command(
				raft.Term(rapid.IntRange(1, int(s.CurrentTerm)).Draw(t, "entry term")),
				rapid.StringN(0, -1, 300).Draw(t, "command")))
		}
	}
	if err := u.s.Save(s); err != nil {
		u.seen["a save was cut short"]++
		u.failed(t, err, u.model.cutShort(s)...)
		return
	}
	u.model = u.model.saved(s)
	if s.Reset.Index != 0 {
		u.seen["the log was reset"]++
	}
}

// beginTaking begins a snapshot of some entry in the log.
func (u *user) beginTaking(t *rapid.T) {
	first := max(u.model.newest().Index, u.model.start.Index) + 1
	if u.writer != nil || first > u.model.last() {
		return
	}
	index := first + raft.Index(rapid.IntRange(0, int(u.model.last()-first)).Draw(t, "index"))
	term := u.model.log[index-u.model.start.Index-1].Term
	u.taking = snapshotOf(index, term, stateAt(index, rapid.IntRange(1, 2000).Draw(t, "bytes")))
	description := u.taking
	description.Size, description.Checksum = 0, 0
	w, err := u.s.CreateSnapshot(description)
	if err != nil {
		u.takeFailed(t, err)
		return
	}
	u.writer, u.written = w, 0
}

// takeFailed: a failed snapshot is no failed storage, unless power is lost too.
func (u *user) takeFailed(t *rapid.T, err error) {
	if errors.Is(err, storage.ErrOlderSnapshot) {
		u.seen["an older snapshot was dropped"]++
		u.writer = nil
		return
	}
	if u.s.Save(raft.Save{CurrentTerm: max(u.model.term, 1), VotedFor: u.model.vote}) == nil {
		u.model.term = max(u.model.term, 1)
		u.seen["a snapshot failed and the storage went on"]++
		u.writer = nil
		return
	}
	u.seen["a snapshot was cut short"]++
	u.disk.Crash()
	touched := u.model.saved(raft.Save{CurrentTerm: max(u.model.term, 1), VotedFor: u.model.vote})
	u.restart(t, u.model, touched, u.model.stored(u.taking), touched.stored(u.taking))
}

func (u *user) goOnTaking(t *rapid.T) {
	if u.writer == nil {
		return
	}
	data := stateAt(u.taking.Index, int(u.taking.Size))
	n := rapid.IntRange(1, len(data)).Draw(t, "bytes")
	n = min(n, len(data)-u.written)
	if n > 0 {
		if _, err := u.writer.Write(data[u.written : u.written+n]); err != nil {
			u.writer.Abort()
			u.takeFailed(t, err)
			return
		}
		u.written += n
		return
	}
	taken, err := u.writer.Commit()
	if err != nil {
		u.takeFailed(t, err)
		return
	}
	require.True(t, same(u.taking, taken))
	u.writer = nil
	u.model = u.model.stored(u.taking)
	u.seen["a snapshot was taken"]++
}

func (u *user) abort(*rapid.T) {
	if u.writer != nil {
		u.writer.Abort()
		u.writer = nil
	}
}

// receive goes on with the snapshot that is under way, or begins another one.
func (u *user) receive(t *rapid.T) {
	if u.received == 0 || rapid.IntRange(0, 9).Draw(t, "another") == 0 {
		if u.model.term == 0 {
			return
		}
		index := raft.Index(rapid.IntRange(1, int(u.model.last())+5).Draw(t, "index"))
		term := raft.Term(rapid.IntRange(1, int(u.model.term)).Draw(t, "snapshot term"))
		if n := index - u.model.start.Index; index > u.model.start.Index && index <= u.model.last() && rapid.Bool().Draw(t, "matching") {
			term = u.model.log[n-1].Term
		}
		u.incoming = snapshotOf(index, term, stateAt(index, rapid.IntRange(1, 2000).Draw(t, "bytes")))
		u.received = 0
	}
	data := stateAt(u.incoming.Index, int(u.incoming.Size))
	n := rapid.IntRange(1, len(data)).Draw(t, "bytes")
	c := raft.Chunk{Snapshot: u.incoming, Offset: uint64(u.received), Data: data[u.received:min(u.received+n, len(data))]}
	damaged := c.Last() && rapid.IntRange(0, 9).Draw(t, "damaged") == 0
	if damaged {
		c.Data = slices.Clone(c.Data)
		c.Data[0] ^= 1
	}
	err := u.s.Receive(c)
	if damaged && errors.Is(err, storage.ErrDamagedSnapshot) {
		u.seen["a damaged snapshot was dropped"]++
		u.received = 0
		return
	}
	if err != nil {
		u.seen["a received snapshot was cut short"]++
		u.failed(t, err, u.model, u.model.stored(u.incoming))
		return
	}
	require.False(t, damaged)
	if u.received += len(c.Data); c.Last() {
		u.model = u.model.stored(u.incoming)
		u.received = 0
		u.seen["a snapshot was received"]++
	}
}

func (u *user) compact(t *rapid.T) {
	// The core asks for no more than its snapshot stands for.
	upTo := raft.Index(rapid.IntRange(0, int(u.model.newest().Index)).Draw(t, "up to"))
	err := u.s.Compact(upTo)
	u.model = u.model.compacted(upTo)
	if err != nil {
		u.seen["a compaction was cut short"]++
		u.failed(t, err, u.model)
	}
}

func (u *user) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"save":        u.save,
		"save again":  u.save,
		"begin":       u.beginTaking,
		"go on":       u.goOnTaking,
		"go on again": u.goOnTaking,
		"abort":       u.abort,
		"receive":     u.receive,
		"compact":     u.compact,
		"restart":     func(t *rapid.T) { u.restart(t, u.model) },
	}
	if u.disk != nil {
		maps.Copy(actions, map[string]func(*rapid.T){
			"crash":            func(t *rapid.T) { u.disk.Crash(); u.restart(t, u.model) },
			"power fails soon": func(t *rapid.T) { u.disk.CrashAfter(rapid.IntRange(0, 20).Draw(t, "operations")) },
			"disk fails soon":  func(t *rapid.T) { u.disk.FailAfter(rapid.IntRange(0, 20).Draw(t, "operations"), errDisk) },
		})
	}
	return actions
}

// Both storages do what the twin does: whatever is saved, taken, received and
// compacted, in any order, with crashes and failures of the disk anywhere.
func TestStoragesDoWhatTheTwinDoes(t *testing.T) {
	seen := map[string]int{}
	t.Run("memory", rapid.MakeCheck(func(t *rapid.T) {
		u := &user{s: storage.NewMapStorage(), seen: seen}
		t.Repeat(u.actions())
		requireFound(t, u.s, []twin{u.model})
	}))
	t.Run("files", rapid.MakeCheck(func(t *rapid.T) {
		u := &user{disk: newDisk(rapid.Uint64().Draw(t, "seed")), seen: seen}
		u.restart(t, twin{})
		t.Repeat(u.actions())
		u.restart(t, u.model)
		require.Empty(t, u.s.(*storage.FileStorage).Warnings(), "nothing was damaged")
		if u.disk.ReadFile(segmentFile(1)) == nil {
			seen["the beginning of the log is gone"]++
		}
	}))
	t.Log(seen)
	for _, often := range []string{
		"the log was reset", "a snapshot was taken", "a snapshot was received",
		"a save was cut short", "a received snapshot was cut short", "a start was cut short",
	} {
		require.NotZero(t, seen[often], often)
	}
}
