package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"raftkv/api"
	"raftkv/kvclient"
	"raftkv/raft"
)

// joinTimeout bounds how long a server that is to join looks for its cluster.
const joinTimeout = 5 * time.Second

// joined is what a server must know of the cluster that it is to be added to.
type joined struct {
	cluster raft.ClusterID
	name    string
	after   raft.Index // kvservice.NodeConfig's JoinAfter
	added   bool       // it is a member already
}

// findCluster asks the servers at the given addresses which cluster they are of,
// and refuses an id or an address that others have there.
func (f *serveFlags) findCluster(ctx context.Context) (joined, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	addresses := clientFlags{endpoints: f.join}
	client := kvclient.New(addresses.list())
	defer client.Close()
	var last error = kvclient.ErrNoEndpoints
	for _, address := range addresses.list() {
		status, err := client.Status(ctx, address)
		if err != nil {
			last = err
			continue
		}
		if len(status.Configuration.Voters) == 0 {
			return joined{}, refused("--join: the server at %s waits to be added itself; give the address of a member", address)
		}
		// Who is in it is the leader's word: a server that lags behind could name a
		// configuration from before an earlier server with this id.
		now, err := client.Members(ctx)
		if err != nil {
			last = err
			continue
		}
		status.Configuration, status.Members = now.Configuration, now.Members
		return f.checkCluster(address, status)
	}
	return joined{}, refused("--join: the cluster cannot be reached at %s (%s); give the HTTP address of a server that runs", f.join, innermost(last))
}

func (f *serveFlags) checkCluster(address string, status *api.StatusResponse) (joined, error) {
	cluster, err := strconv.ParseUint(status.Cluster, 16, 64)
	if err != nil || cluster == 0 {
		return joined{}, refused("--join: %s is of cluster %q, which is no id", address, status.Cluster)
	}
	if f.nameGiven && f.clusterName != status.ClusterName {
		return joined{}, refused("--join: the cluster at %s is called %q, not %q; leave --cluster-name out", address, status.ClusterName, f.clusterName)
	}
	found := joined{cluster: raft.ClusterID(cluster), name: status.ClusterName, after: raft.Index(status.Configuration.Index)}
	for _, m := range status.Members {
		switch {
		case m.ID != f.id && m.Raft == f.raft:
			return joined{}, refused("--join: the address %s is that of server %d; choose another, or remove that server first", f.raft, m.ID)
		case m.ID == f.id && (m.Role != api.RoleLearner || m.Since == 0):
			return joined{}, refused("--join: server %d has been in the cluster before, at %s, and %s is new; choose another id, or, if the disk of that server is lost, remove it first: raftkv member remove %[1]d", f.id, m.Raft, f.data)
		case m.ID == f.id && m.Raft != f.raft:
			return joined{}, refused("--join: server %d is at %s, not at %s; choose another id, or remove that server first", f.id, m.Raft, f.raft)
		case m.ID == f.id:
			found.added, found.after = true, raft.Index(m.Since-1)
		}
	}
	return found, nil
}

// joinHint says how a server that waits gets in.
func (f *serveFlags) joinHint(found joined) string {
	if found.added {
		return fmt.Sprintf("joining: server %d is a member of cluster %016x already", f.id, uint64(found.cluster))
	}
	return fmt.Sprintf("joining: cluster %016x; let it in with: raftkv member add %d=%s", uint64(found.cluster), f.id, f.raft)
}
