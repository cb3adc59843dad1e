// Command etcdnode is a node of an etcd cluster: etcd's server as a library, which
// is what its own command runs. All is as etcd has it, but for the timeouts if they
// are given, a quota that a million keys do not reach, and a quiet log.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"raftkv/bench/peers/internal/node"
)

func main() {
	heartbeat := flag.Duration("heartbeat", 100*time.Millisecond, "etcd's heartbeat-interval")
	election := flag.Duration("election", time.Second, "etcd's election-timeout")
	c := node.Parse()

	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	at := func(addr string) url.URL { return url.URL{Scheme: "http", Host: addr} }
	config := embed.NewConfig()
	config.Name = name(c.ID)
	config.Dir = filepath.Join(c.Dir, "etcd")
	config.ListenPeerUrls = []url.URL{at(c.Peers[c.ID])}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.ListenClientUrls = []url.URL{at(c.Clients[c.ID])}
	config.AdvertiseClientUrls = config.ListenClientUrls
	var members []string
	for i, peer := range c.Peers {
		members = append(members, name(i)+"=http://"+peer)
	}
	config.InitialCluster = strings.Join(members, ",")
	config.TickMs = uint(heartbeat.Milliseconds())
	config.ElectionMs = uint(election.Milliseconds())
	config.QuotaBackendBytes = 8 << 30
	config.LogLevel = "error"
	server, err := embed.StartEtcd(config)
	node.Check(err)
	log.Fatal(<-server.Err())
}
