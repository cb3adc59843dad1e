package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvservice"
	"raftkv/raft"
	"raftkv/raft/server"
)

// defaultElectionTimeout is long enough for a busy laptop with slow disks: a
// leader is missed for at most a second, and not deposed because of one slow sync.
const defaultElectionTimeout = 500 * time.Millisecond

const defaultClusterName = "raftkv"

// serveFlags are the flags of serve.
type serveFlags struct {
	id              uint64
	data            string
	http            string
	raft            string
	cluster         string
	join            string
	clusterName     string
	nameGiven       bool
	electionTimeout time.Duration
	duplicates      string
	logLevel        slog.Level
	control         bool
	pprof           string
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --id N --data DIR --http ADDR --raft ADDR [--cluster 1=ADDR,2=ADDR,3=ADDR | --join HTTPADDR]",
		Short: "Run one server of a cluster",
		Long: `Serve runs one server until SIGINT or SIGTERM. Then it hands leadership over, lets
requests under way come to their end, and exits with 0, after six seconds at most;
a second signal makes it wait for nobody. It logs to standard error. The addresses in --cluster are the --raft addresses of all
servers, the same list for each of them. The list and --cluster-name are stored
in the data directory at the first start. Later they may be left out; another
list or name is refused.

With --join the server asks a running cluster for its id and name, and waits until
raftkv member add takes it in. After its first start it asks nobody.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.nameGiven = cmd.Flags().Changed("cluster-name")
			config, hint, err := f.config(cmd.Context())
			if err != nil {
				return err
			}
			if hint != "" {
				fmt.Fprintln(cmd.OutOrStdout(), hint)
			}
			if f.pprof != "" {
				if _, err := serveProfiles(f.pprof); err != nil {
					return err
				}
			}
			config.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: f.logLevel}))
			return serve(cmd, config, f.control)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.id, "id", 0, "the number of this server in --cluster, from 1")
	flags.StringVar(&f.data, "data", "", "the data directory; made at the first start")
	flags.StringVar(&f.http, "http", "127.0.0.1:8080", "where to listen for clients, host:port")
	flags.StringVar(&f.raft, "raft", "127.0.0.1:9080", "where to listen for the other servers, host:port")
	flags.StringVar(&f.cluster, "cluster", "", "the raft addresses of all servers: 1=ADDR,2=ADDR,…; needed at the first start")
	flags.StringVar(&f.join, "join", "", "the HTTP address of a server of the cluster to join, at the first start")
	flags.StringVar(&f.clusterName, "cluster-name", defaultClusterName, "tells clusters with the same addresses apart")
	flags.DurationVar(&f.electionTimeout, "election-timeout", defaultElectionTimeout, "the shortest time without a leader before an election")
	flags.StringVar(&f.duplicates, "duplicates", "", duplicatesUsage)
	flags.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "what to log: debug (every request), info, warn or error")
	flags.StringVar(&f.pprof, "pprof", "", "an address of loopback where go tool pprof may ask for profiles; empty for none")
	flags.BoolVar(&f.control, "control", false, "take orders from standard input, and end with it")
	flags.MarkHidden("control")
	for _, name := range []string{"id", "data"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}

// config checks the flags. hint, if not "", tells what is to be done next.
func (f *serveFlags) config(ctx context.Context) (config kvservice.NodeConfig, hint string, err error) {
	if f.id == 0 {
		return config, "", refused("--id 0 means nobody; ids start at 1")
	}
	if f.data == "" {
		return config, "", refused("--data is empty; name a directory")
	}
	for name, address := range map[string]string{"--http": f.http, "--raft": f.raft} {
		if err := checkAddress(address); err != nil {
			return config, "", refused("%s %q is no address: %v; give host:port", name, address, err)
		}
	}
	if f.electionTimeout <= 0 {
		return config, "", refused("--election-timeout %v leaves no time; give more than 0, 500ms being usual", f.electionTimeout)
	}
	if err := checkDuplicates(f.duplicates); err != nil {
		return config, "", err
	}
	config = kvservice.NodeConfig{
		ID:              raft.ServerID(f.id),
		Data:            f.data,
		HTTPAddr:        f.http,
		RaftAddr:        f.raft,
		ClusterName:     f.clusterName,
		ElectionTimeout: f.electionTimeout,
		Duplicates:      api.Duplicates(f.duplicates),
	}
	if f.cluster != "" {
		if f.join != "" {
			return config, "", refused("--cluster begins a cluster and --join joins one; give one of them")
		}
		config.Members, err = parseMembers(f.cluster)
		if _, ok := config.Members[config.ID]; err == nil && !ok {
			err = refused("--id %d is not among the members %s; add it, or correct one of them", f.id, memberList(config.Members))
		}
		return config, "", err
	}
	stored, err := server.StoredIdentity(f.data)
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.join != "":
		found, err := f.findCluster(ctx)
		if err != nil {
			return config, "", err
		}
		config.Join, config.JoinAfter, config.ClusterName = found.cluster, found.after, found.name
		return config, f.joinHint(found), nil
	case errors.Is(err, fs.ErrNotExist):
		return config, "", refused("--cluster is needed at the first start of %s; give 1=host:port,2=host:port,…, or --join to join a running cluster", f.data)
	case err != nil:
		return config, "", refused("server %d cannot start: %v", f.id, err)
	case stored.Server != config.ID:
		return config, "", refused("%s belongs to server %d, not to server %d; correct --id or --data", f.data, stored.Server, f.id)
	case f.nameGiven && f.clusterName != stored.ClusterName:
		return config, "", refused("%s belongs to another cluster: its cluster is %q, not %q; leave --cluster-name out", f.data, stored.ClusterName, f.clusterName)
	}
	// Who the cluster began with stands there; who takes part now, in the log.
	return config, "", nil
}

const duplicatesUsage = "how repeated requests are answered, in the whole cluster and for good: cached (with the first result; the default) or report"

// checkDuplicates refuses what no cluster can be. "" is whatever the cluster is.
func checkDuplicates(d string) error {
	switch api.Duplicates(d) {
	case "", api.DuplicatesCached, api.DuplicatesReport:
		return nil
	}
	return refused("--duplicates %q is neither cached nor report; give one of them, or leave it out", d)
}

// memberList writes members as --cluster takes them.
func memberList(members map[raft.ServerID]string) string {
	var items []string
	for _, id := range slices.Sorted(maps.Keys(members)) {
		items = append(items, fmt.Sprintf("%d=%s", id, members[id]))
	}
	return strings.Join(items, ",")
}

// parseMembers reads a list such as 1=127.0.0.1:9080,2=127.0.0.1:9081.
func parseMembers(list string) (map[raft.ServerID]string, error) {
	members := map[raft.ServerID]string{}
	taken := map[string]raft.ServerID{}
	for item := range strings.SplitSeq(list, ",") {
		number, address, ok := strings.Cut(item, "=")
		n, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil || n == 0 {
			return nil, refused("%q in --cluster is not NUMBER=ADDR with a number from 1; give 1=host:port,2=host:port,…", item)
		}
		if err := checkAddress(address); err != nil {
			return nil, refused("%q in --cluster has no address: %v; give host:port", item, err)
		}
		id := raft.ServerID(n)
		if _, double := members[id]; double {
			return nil, refused("server %d stands twice in --cluster; give each server its own number", id)
		}
		if other, double := taken[address]; double {
			return nil, refused("servers %d and %d in --cluster have the same address %s; give each its own", other, id, address)
		}
		members[id], taken[address] = address, id
	}
	return members, nil
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the port %q is no number below 65536", port)
	}
	return nil
}

// serve runs a node until a signal comes or something fails.
func serve(cmd *cobra.Command, config kvservice.NodeConfig, control bool) error {
	node, err := kvservice.Start(config)
	if err != nil {
		return refused("server %d cannot start: %v", config.ID, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "serving: server %d, clients at http://%s, servers at %s\n", config.ID, node.HTTPAddr(), node.RaftAddr())
	ctx := cmd.Context()
	if control {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			obey(cmd.InOrStdin(), node)
			cancel()
		}()
	}
	select {
	case <-ctx.Done():
		return stop(config.ID, node, stopBound)
	case <-node.Done():
		return refused("server %d has stopped: %v", config.ID, node.Err())
	}
}

// stopBound is how long a server may take to stop. It waits for others for six
// seconds at most; if it takes longer, its disk does not answer.
const stopBound = 10 * time.Second

// stopping is a node that can be ended.
type stopping interface {
	Stop() error
	Hurry()
}

// stop ends the node. Another signal makes it wait for nobody. A disk that hangs
// is not waited for either: what was acknowledged is on it, or on the disks of a
// majority.
func stop(id raft.ServerID, node stopping, bound time.Duration) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	ended := make(chan error, 1)
	go func() { ended <- node.Stop() }()
	over := time.After(bound)
	for {
		select {
		case <-again:
			node.Hurry()
		case err := <-ended:
			if err != nil {
				return refused("server %d did not end well: %v", id, err)
			}
			return nil
		case <-over:
			return refused("server %d ends without its disk, which has not answered for %v; what was acknowledged is safe, look after the disk", id, bound)
		}
	}
}

// obey takes the demo's orders until they end, which means that the demo is
// gone: "cut N" breaks the connection to a server, "heal" mends all.
func obey(orders io.Reader, node *kvservice.Node) {
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		order, argument, _ := strings.Cut(lines.Text(), " ")
		switch order {
		case "cut":
			if id, err := strconv.ParseUint(argument, 10, 64); err == nil {
				node.Cut(raft.ServerID(id))
			}
		case "heal":
			node.Heal()
		}
	}
}
