package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"raftkv/kvservice"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// restore makes the data directory, and returns what it holds and the id of the
// new cluster. It is made beside its place and renamed: a directory that exists
// is whole.
func (r *restoreFlags) restore(path string) (*content, string, error) {
	switch {
	case r.id == 0:
		return nil, "", refused("--id 0 means nobody; ids start at 1")
	case r.data == "":
		return nil, "", refused("--data is empty; name a directory")
	}
	if err := checkAddress(r.raft); err != nil {
		return nil, "", refused("--raft %q is no address: %v; give host:port", r.raft, err)
	}
	// An empty directory may be there already, made by whoever mounts the disk.
	if err := os.Remove(r.data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", refused("%s is not empty: nothing was restored; name a directory that does not exist", r.data)
	}
	c, err := inspect(path)
	if err != nil {
		return nil, "", refused("cannot use %s: %v", path, err)
	}
	temp := filepath.Clean(r.data) + ".restoring"
	if err := os.RemoveAll(temp); err != nil { // left by a restore that was interrupted
		return nil, "", refused("cannot write: %v", err)
	}
	identity := storage.JoinIdentity(newClusterID(), cmp.Or(r.clusterName, c.ClusterName), raft.ServerID(r.id))
	err = r.fill(temp, path, identity)
	if err == nil {
		err = errors.Join(os.Rename(temp, r.data), syncDir(filepath.Dir(filepath.Clean(r.data))))
	}
	if err != nil {
		return nil, "", refused("nothing was restored: %v", errors.Join(err, os.RemoveAll(temp)))
	}
	return c, fmt.Sprintf("%016x", uint64(identity.Cluster)), nil
}

// newClusterID returns an id that no cluster has. One that is made of the name
// and the address, as at a first start, could be that of the old cluster, and
// then its servers would be taken for members.
func newClusterID() (id raft.ClusterID) {
	for id == 0 {
		var b [8]byte
		rand.Read(b[:]) // never fails
		for _, digit := range b {
			id = id<<8 | raft.ClusterID(digit)
		}
	}
	return id
}

// fill makes a data directory whose snapshot is the file's, and whose log begins
// behind it. The only member is this server.
func (r *restoreFlags) fill(dir, path string, identity storage.Identity) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	header, body, err := kvservice.ReadSnapshotFile(file)
	if err != nil {
		return err
	}
	s, err := storage.Open(dir, storage.Options{Identity: identity})
	if err != nil {
		return err
	}
	at := raft.LogPosition{Index: raft.Index(header.Index), Term: raft.Term(header.Term)}
	w, err := s.CreateSnapshot(raft.Snapshot{
		Index: at.Index,
		Term:  at.Term,
		Configuration: raft.NewConfiguration(identity.Server).
			WithAddresses(raft.Address{ID: identity.Server, Addr: r.raft, Since: at.Index}),
		ConfigurationIndex: at.Index,
	})
	if err == nil {
		_, err = io.Copy(w, body)
		if err == nil {
			_, err = w.Commit()
		}
		w.Abort()
	}
	if err == nil {
		err = s.Save(raft.Save{CurrentTerm: at.Term, Reset: at})
	}
	return errors.Join(err, s.Close())
}
