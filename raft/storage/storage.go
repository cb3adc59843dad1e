package storage

import (
	"errors"
	"fmt"

	"raftkv/raft"
)

// Storage is where a server keeps its persistent state.
type Storage interface {
	// Load returns what has been saved; the zero value if nothing has. It may
	// read files. The caller must not change the entries.
	Load() (raft.PersistentState, error)

	// Save makes s durable: when it returns nil, s survives a crash of the
	// machine. It blocks for as long as the disk takes. A Save that is not
	// Needed does nothing.
	//
	// After an error nobody knows what the disk holds. The server must stop and
	// send nothing that relies on s; every later Save returns the same error.
	Save(s raft.Save) error

	// Close releases the storage. What was saved stays. Closing twice is fine.
	Close() error
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
	// hole, or a FirstIndex without entries. The caller is broken. Nothing was
	// written.
	ErrBadSave = errors.New("storage: this cannot be saved")
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

// checkSave says whether a log that ends at index last can hold s.
func checkSave(s raft.Save, last raft.Index) error {
	switch {
	case s.FirstIndex == 0 && len(s.Entries) > 0:
		return fmt.Errorf("%w: %d entries without an index", ErrBadSave, len(s.Entries))
	case s.FirstIndex > last+1:
		return fmt.Errorf("%w: entries from index %d on, but the log ends at %d", ErrBadSave, s.FirstIndex, last)
	case s.FirstIndex != 0 && len(s.Entries) == 0:
		return fmt.Errorf("%w: the log would end before index %d without an entry that says so", ErrBadSave, s.FirstIndex)
	}
	return nil
}
