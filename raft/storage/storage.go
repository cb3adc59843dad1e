package storage

import (
	"errors"
	"fmt"
	"io"

	"raftkv/raft"
)

// Storage is where a server keeps its persistent state: term and vote, the log,
// and the snapshots that stand for its beginning (§7). Any number of goroutines
// may call it; the writing of a snapshot does not keep the others waiting.
type Storage interface {
	// Load returns what has been saved; the zero value if nothing has. It may
	// read files. The caller must not change the entries.
	//
	// The snapshot is the newest one, and log and snapshot always fit together: a
	// log that the snapshot replaces, because it ends before it or has an entry of
	// another term at its index, is dropped.
	Load() (raft.PersistentState, error)

	// Save makes s durable: when it returns nil, s survives a crash of the
	// machine. It blocks for as long as the disk takes. A Save that is not
	// Needed does nothing.
	//
	// ErrBadSave means that nothing was done. After any other error nobody knows
	// what the disk holds. The server must stop and send nothing that relies on s;
	// every later Save returns the same error.
	Save(s raft.Save) error

	// Receive writes a part of a snapshot from another server. When it returns nil
	// for the last one, the snapshot is durable and Load would find it, or a newer
	// one that was there before.
	//
	// ErrDamagedSnapshot, for the last part, means that the bytes are not those
	// that the checksum belongs to; they are dropped. ErrBadChunk means that this
	// part is not the next one; nothing was done. Other errors are final, as for
	// Save.
	Receive(c raft.Chunk) error

	// CreateSnapshot begins a snapshot of this server's own state machine, given
	// everything but Size and Checksum. Its bytes go to the writer, from any
	// goroutine. There can be one such writer at a time, or it is
	// ErrSnapshotUnderWay; and ErrOlderSnapshot if the storage has one as new.
	CreateSnapshot(s raft.Snapshot) (SnapshotWriter, error)

	// ReadSnapshot fills b with the bytes of a stored snapshot from an offset on.
	// It is ErrNoSnapshot if this snapshot is not, or no longer, stored.
	ReadSnapshot(s raft.Snapshot, offset uint64, b []byte) error

	// OpenSnapshot returns the bytes of the stored snapshot with the given index,
	// or ErrNoSnapshot. They can be read until they are closed, whatever Compact
	// does meanwhile. Instead of the end of damaged bytes comes an error.
	OpenSnapshot(index raft.Index) (io.ReadCloser, error)

	// Compact allows to forget the log up to an index, and old snapshots. The last
	// two snapshots stay, with the log behind the older one, so that a server can
	// start although the newer one is damaged; so does every snapshot with an index
	// of upTo or more. Errors are final, as for Save.
	Compact(upTo raft.Index) error

	// Close releases the storage. What was saved stays. Closing twice is fine.
	Close() error
}

// SnapshotWriter takes the bytes of a snapshot of the state machine. It is used
// by one goroutine at a time, beside those that call the storage.
//
// An error of Write or Commit means that there is no such snapshot, no more: it
// was written to a file of its own, and the storage goes on. Only when the
// finished file cannot be given its name is the storage at an end, and every
// Save says so.
type SnapshotWriter interface {
	io.Writer

	// Commit makes the snapshot durable and the one that Load finds. It returns
	// the snapshot with its Size and Checksum. If a newer one was stored in the
	// meantime this one is dropped, and that is ErrOlderSnapshot.
	Commit() (raft.Snapshot, error)

	// Abort drops what was written. After Commit it does nothing.
	Abort()
}

// Errors that a caller may want to tell apart. Each comes wrapped into one line
// for people, which names the directory or the file.
var (
	// ErrLocked reports that another process uses the data directory. Stop that
	// process, or choose another directory.
	ErrLocked = errors.New("is in use by another process")

	// ErrNewerVersion reports a data directory that a newer program has written.
	// Use that program; nothing was changed.
	ErrNewerVersion = errors.New("was written by a newer version of raftkv")

	// ErrNotDataDir reports a directory that holds files, but not those of a
	// data directory. Choose an empty one; nothing was changed.
	ErrNotDataDir = errors.New("holds other files and is no raftkv data directory")

	// ErrInUse reports a directory that Restore would have to write into. Choose an
	// empty one; nothing was changed.
	ErrInUse = errors.New("is not empty")

	// ErrIdentity reports a data directory of another server or cluster, or one
	// that was first started with another member list. Correct the flags or
	// choose another directory; nothing was changed.
	ErrIdentity = errors.New("belongs to another server or cluster")

	// ErrForeignStore reports a server that came back with another data
	// directory than the one it had before (see [FileStorage.RememberStore]).
	ErrForeignStore = errors.New("lost its disk: remove it and add it again")

	// ErrClosed reports a call after Close.
	ErrClosed = errors.New("storage: closed")

	// ErrBadSave reports a Save that no log can hold: entries that would leave a
	// hole, a FirstIndex without entries, or a Reset that no snapshot covers. The
	// caller is broken. Nothing was written.
	ErrBadSave = errors.New("storage: this cannot be saved")

	// ErrBadChunk reports a part of a snapshot that does not follow the one
	// before. The caller is broken. Nothing was written.
	ErrBadChunk = errors.New("storage: this part of a snapshot is not the next one")

	// ErrDamagedSnapshot reports received bytes that are not the snapshot's. Let
	// it be sent again.
	ErrDamagedSnapshot = errors.New("storage: the checksum of the snapshot does not match")

	// ErrOlderSnapshot reports that a snapshot as new as this one is stored
	// already, so this one is of no use.
	ErrOlderSnapshot = errors.New("storage: a snapshot as new as this one is there")

	// ErrSnapshotUnderWay reports that a snapshot is being taken. Wait for its end.
	ErrSnapshotUnderWay = errors.New("storage: another snapshot is being taken")

	// ErrNoSnapshot reports a snapshot that is not stored, perhaps not any more.
	ErrNoSnapshot = errors.New("storage: there is no such snapshot")
)

// CorruptError reports a file that was complete once and is not what was
// written to it. It says where. Nothing was changed; the server must not start,
// because it may have promised what is now lost. Take the server out of the
// cluster and add it again with an empty directory.
type CorruptError struct {
	File   string // path of the file
	Offset int64  // in bytes, of the first damage
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// checkSave says whether a log that begins behind start and ends at last can hold
// s, where snapshot is the index of the newest one.
func checkSave(s raft.Save, start, last, snapshot raft.Index) error {
	if s.Reset.Index > snapshot {
		return fmt.Errorf("%w: a log behind index %d, but the newest snapshot is %d", ErrBadSave, s.Reset.Index, snapshot)
	}
	if s.Reset.Index != 0 {
		start, last = s.Reset.Index, s.Reset.Index
	}
	switch {
	case s.FirstIndex == 0 && len(s.Entries) > 0:
		return fmt.Errorf("%w: %d entries without an index", ErrBadSave, len(s.Entries))
	case s.FirstIndex > last+1:
		return fmt.Errorf("%w: entries from index %d on, but the log ends at %d", ErrBadSave, s.FirstIndex, last)
	case s.FirstIndex != 0 && len(s.Entries) == 0:
		return fmt.Errorf("%w: the log would end before index %d without an entry that says so", ErrBadSave, s.FirstIndex)
	case s.FirstIndex != 0 && s.FirstIndex <= start:
		return fmt.Errorf("%w: entries from index %d on, but the log begins behind %d", ErrBadSave, s.FirstIndex, start)
	}
	return nil
}

// checkChunk says whether c is the next part of a snapshot of which this much has come.
func checkChunk(c raft.Chunk, s raft.Snapshot, next uint64) error {
	if c.Snapshot.Index == 0 || !c.Snapshot.Same(s) || c.Offset != next {
		return fmt.Errorf("%w: snapshot %d at %d, after %d bytes of snapshot %d", ErrBadChunk, c.Snapshot.Index, c.Offset, next, s.Index)
	}
	if left := s.Size - next; uint64(len(c.Data)) > left {
		return fmt.Errorf("%w: %d bytes, but only %d are left of snapshot %d", ErrBadChunk, len(c.Data), left, s.Index)
	}
	return nil
}

// connect makes a log go with a snapshot that does not end before it, and reports
// whether the log had to be dropped for that. A crash between the storing of a
// snapshot and the Reset that follows it leaves such a pair (pitfall SN-11).
func connect(state *raft.PersistentState, s raft.Snapshot) (dropped bool) {
	state.Snapshot = s
	term, held := state.Start.Term, true
	if n := s.Index - state.Start.Index; n > raft.Index(len(state.Entries)) {
		held = false
	} else if n > 0 {
		term = state.Entries[n-1].Term
	}
	if held && term == s.Term {
		return false // what follows the snapshot may have been acknowledged
	}
	state.Start, state.Entries = raft.LogPosition{Index: s.Index, Term: s.Term}, nil
	return true
}

// keepFrom returns up to where the log may be forgotten when Compact(upTo) is
// asked for and these snapshots are stored, oldest first: there must be two ways
// to start. With one snapshot the other way is from the beginning.
func keepFrom(snapshots []raft.Index, upTo raft.Index) raft.Index {
	if len(snapshots) < 2 {
		return 0
	}
	return min(upTo, snapshots[len(snapshots)-2])
}

// keeps reports whether Compact(upTo) leaves the i-th of these snapshots.
func keeps(snapshots []raft.Index, i int, upTo raft.Index) bool {
	return i >= len(snapshots)-2 || snapshots[i] >= upTo
}
