package storage

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"raftkv/raft"
)

// Restore makes the data directory of a new cluster that begins with a snapshot,
// perhaps of one that is lost: from its bytes, Index, Term, Size and Checksum. The
// members of o.Identity are the voters, usually one; further servers are added
// when it runs. What the old cluster did behind the snapshot is gone.
//
// The directory must be empty or not there, else it is ErrInUse; other bytes than
// the snapshot's are ErrDamagedSnapshot. After an error remove what is there and
// begin anew: no server starts from it.
func Restore(dir string, o Options, snapshot raft.Snapshot, data io.Reader) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if snapshot.Index == 0 || len(o.Identity.Members) == 0 {
		return fmt.Errorf("%w: a cluster begins with a snapshot and with members", raft.ErrConfig)
	}
	snapshot.ConfigurationIndex = snapshot.Index
	snapshot.Configuration = FirstConfiguration(o.Identity.Members)
	names, err := listDir(o.FS, dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("directory %s %w (%s)", dir, ErrInUse, names[0])
	}
	if err := makeDir(o.FS, dir); err != nil {
		return err
	}
	lock, err := o.FS.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return err
	}
	// As at any first start, the identity comes last and makes the rest count. Power
	// may be lost before: then Open refuses the directory.
	if err := syncParents(o.FS, dir); err != nil {
		return errors.Join(err, lock.Close())
	}
	store := o.NewStoreID()
	if err = restoreSnapshot(o.FS, dir, snapshot, store, data); err == nil {
		w := batchWriter{newChecksum(store), 1, nil}
		w.state(snapshot.Term, raft.None)
		w.reset(raft.LogPosition{Index: snapshot.Index, Term: snapshot.Term})
		err = makeFiles(dir, o, store, w.bytes)
	}
	return errors.Join(err, lock.Close())
}

// restoreSnapshot copies data to the file of a snapshot.
func restoreSnapshot(fsys FS, dir string, s raft.Snapshot, store raft.StoreID, data io.Reader) error {
	temp := filepath.Join(dir, takenTemp)
	u, err := createSnapshotFile(fsys, temp, s, store)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(u, data, make([]byte, snapshotBuffer))
	if err == nil && !u.snapshot.Same(s) {
		err = ErrDamagedSnapshot
	}
	if err == nil {
		err = u.finish()
	}
	if err != nil {
		u.close()
		return err
	}
	if err := fsys.Rename(temp, filepath.Join(dir, snapshotName(s.Index))); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
