package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"raftkv/kvservice"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// restoreFlags are the flags of snapshot restore.
type restoreFlags struct {
	id          uint64
	data        string
	raft        string
	clusterName string
}

func snapshotRestoreCommand() *cobra.Command {
	var f clientFlags
	var r restoreFlags
	cmd := &cobra.Command{
		Use:   "restore FILE --data DIR --id N --raft ADDR",
		Short: "Make a data directory from a snapshot file",
		Long: `Restore makes the data directory of a new cluster of one server, which holds what
FILE holds. Start it with raftkv serve, with the same --data, --id and --raft; add
others with raftkv member add. The cluster has a new id, so servers of the old one
are refused: it is another cluster with the same content.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkFormat(); err != nil {
				return err
			}
			c, cluster, err := r.restore(args[0])
			if err != nil {
				return f.explain(cmd, err)
			}
			return f.printRestored(cmd.OutOrStdout(), r.data, cluster, c)
		},
	}
	f.addFormat(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.data, "data", "", "the data directory to make")
	flags.Uint64Var(&r.id, "id", 0, "the number of the server, from 1")
	flags.StringVar(&r.raft, "raft", "127.0.0.1:9080", "its raft address, host:port")
	flags.StringVar(&r.clusterName, "cluster-name", "", "a name for the new cluster; that of the old one if not given")
	for _, name := range []string{"id", "data"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}

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

func (f *clientFlags) printRestored(out io.Writer, dir, cluster string, c *content) error {
	switch f.format {
	case formatJSON:
		return printJSON(out, struct {
			Data, Cluster  string
			Index          uint64
			Keys, Sessions int
		}{dir, cluster, c.Index, c.Keys, c.Sessions})
	case formatTable:
		return printTable(out, []any{"DATA", "CLUSTER", "INDEX", "KEYS", "SESSIONS"}, []any{dir, cluster, c.Index, c.Keys, c.Sessions})
	}
	_, err := fmt.Fprintf(out, "OK: %s holds cluster %s with %d keys and %d sessions, as of index %d of cluster %s\n", dir, cluster, c.Keys, c.Sessions, c.Index, c.Cluster)
	return err
}
