package contender

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"raftkv/bench/peers/internal/load"
)

func init() {
	for name, flags := range map[string][]string{
		"etcd":       nil,
		"etcd-tuned": {"--heartbeat", "15ms", "--election", "150ms"},
	} {
		register(&Contender{
			Name:    name,
			Ops:     []load.Op{load.Put, load.Get, load.Batch},
			Command: program("etcdnode", flags...),
			Leads:   etcdLeads,
			Dial:    dialEtcd,
			Shared:  shareEtcd,
			Journal: "/wal/",
		})
	}
}

func etcdClient(addrs ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
}

func etcdLeads(p Place, i int) bool {
	client, err := etcdClient(p.Clients[i])
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patient.Timeout)
	defer cancel()
	status, err := client.Status(ctx, p.Clients[i])
	return err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId
}

// sharers is how many clients use one connection: gRPC carries many requests on
// one, and etcd's own benchmark has fewer connections than clients, too.
const sharers = 16

type etcdSession struct {
	timeout time.Duration
	nodes   [][]*clientv3.Client // the connections to each node
	asks    []int                // the node that each client asks
}

func dialEtcd(p Place, clients, first int, timeout time.Duration) (load.Session, error) {
	s := &etcdSession{timeout: timeout, asks: make([]int, clients)}
	for i := range s.asks {
		s.asks[i] = first
	}
	for _, addr := range p.Clients {
		var connections []*clientv3.Client
		for range (clients + sharers - 1) / sharers {
			c, err := etcdClient(addr)
			if err != nil {
				return nil, err
			}
			connections = append(connections, c)
		}
		s.nodes = append(s.nodes, connections)
	}
	return s, nil
}

// shareEtcd returns one clientv3, which knows all nodes and chooses among them.
func shareEtcd(p Place, timeout time.Duration) (load.Session, error) {
	c, err := etcdClient(p.Clients...)
	if err != nil {
		return nil, err
	}
	return &etcdSession{timeout: timeout, nodes: [][]*clientv3.Client{{c}}}, nil
}

func (s *etcdSession) Do(client int, r load.Request) error {
	node := 0
	if s.asks != nil {
		node = s.asks[client]
	}
	connections := s.nodes[node]
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	err := etcdCall(ctx, connections[client%len(connections)], r)
	if err != nil && s.asks != nil {
		s.asks[client] = (node + 1) % len(s.nodes)
	}
	return err
}

var errAbsent = errors.New("the key is absent")

// etcdCall has no identity for a write: a put that is tried again may be carried
// out twice. etcd has no sessions of that kind.
func etcdCall(ctx context.Context, c *clientv3.Client, r load.Request) error {
	switch r.Op {
	case load.Put:
		_, err := c.Put(ctx, load.Key(r.Key), r.Value)
		return err
	case load.Batch:
		ops := make([]clientv3.Op, load.BatchSize)
		for i := range ops {
			ops[i] = clientv3.OpPut(load.Key(r.Key+i), r.Value)
		}
		_, err := c.Txn(ctx).Then(ops...).Commit()
		return err
	}
	answer, err := c.Get(ctx, load.Key(r.Key))
	if err == nil && r.Op == load.Find && len(answer.Kvs) == 0 {
		return errAbsent
	}
	return err
}

func (s *etcdSession) Close() {
	for _, connections := range s.nodes {
		for _, c := range connections {
			c.Close()
		}
	}
}
