package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"raftkv/kvservice"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// restore makes the data directory, and returns what it holds and the id of the
// new cluster.
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
	names, err := os.ReadDir(r.data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", refused("nothing was restored: %v", err)
	}
	if len(names) > 0 {
		return nil, "", refused("nothing was restored: %s is not empty; name a directory that does not exist", r.data)
	}
	// First all of it, so that a damaged file leaves nothing behind.
	c, err := inspect(path)
	if err != nil {
		return nil, "", refused("cannot use %s: %v", path, err)
	}
	identity := storage.Identity{
		Cluster:     newClusterID(),
		ClusterName: cmp.Or(r.clusterName, c.ClusterName),
		Server:      raft.ServerID(r.id),
		Members:     []storage.Member{{ID: raft.ServerID(r.id), Addr: r.raft}},
	}
	if err := r.fill(path, identity); err != nil {
		return nil, "", refused("nothing was restored: %v", errors.Join(err, os.RemoveAll(r.data)))
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
func (r *restoreFlags) fill(path string, identity storage.Identity) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	header, body, err := kvservice.ReadSnapshotFile(file)
	if err != nil {
		return err
	}
	return storage.Restore(r.data, storage.Options{Identity: identity}, raft.Snapshot{
		Index:    raft.Index(header.Index),
		Term:     raft.Term(header.Term),
		Size:     header.Bytes,
		Checksum: header.CRC32C,
	}, body)
}
