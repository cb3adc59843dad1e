package contender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"raftkv/api"
	"raftkv/bench/internal/rawhttp"
	"raftkv/bench/peers/internal/load"
	"raftkv/kvclient"
)

func init() {
	for name, flags := range map[string][]string{
		"raftkv":       nil,
		"raftkv-tuned": {"--election-timeout", "150ms"},
	} {
		register(&Contender{
			Name:    name,
			Ops:     []load.Op{load.Put, load.Get, load.Batch},
			Command: func(p Place, i int) []string { return append(serve(p, i), flags...) },
			Leads:   raftkvLeads,
			Dial:    dialRaftkv,
			Shared:  shareRaftkv,
			Journal: "/log",
		})
	}
}

// serve returns the command line of raftkv, whose servers are numbered from 1. The
// log is as quiet as that of the others.
func serve(p Place, i int) []string {
	var members []string
	for n, peer := range p.Peers {
		members = append(members, fmt.Sprintf("%d=%s", n+1, peer))
	}
	return []string{
		p.Raftkv, "serve", "--id", strconv.Itoa(i + 1), "--data", filepath.Join(p.Dirs[i], "raftkv"),
		"--http", p.Clients[i], "--raft", p.Peers[i], "--cluster", strings.Join(members, ","), "--log-level", "error",
	}
}

func raftkvLeads(p Place, i int) bool {
	answer, err := patient.Get("http://" + p.Clients[i] + api.PathStatus)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var status struct{ ID, Leader uint64 }
	return json.NewDecoder(answer.Body).Decode(&status) == nil && status.Leader != 0 && status.Leader == status.ID
}

func dialRaftkv(p Place, clients, first int, timeout time.Duration) (load.Session, error) {
	return dialHTTP(p, dialect{openRaftkv, writeRaftkv, goodRaftkv}, clients, first, timeout), nil
}

// openRaftkv registers a client with the store, so that its writes have the full
// promise: a ClientID that the store has made, and numbers 1, 2, 3 and so on.
func openRaftkv(c *rawhttp.Conn) (identity, error) {
	status, body, err := c.Post(api.PathSession, []byte("{}"))
	if err != nil {
		return identity{}, err
	}
	var answer api.SessionResponse
	if err := json.Unmarshal(body, &answer); err != nil || answer.ClientID == "" {
		return identity{}, fmt.Errorf("no session was opened: status %d: %s", status, body)
	}
	return identity{name: string(answer.ClientID)}, nil
}

func writeRaftkv(b []byte, id identity, r load.Request) (path string, _ []byte) {
	switch r.Op {
	case load.Put:
		return api.PathPut, appendRaftkvPut(b, id, r.Number, r.Key, r.Value)
	case load.Batch:
		b = append(b, `{"Operations":[`...)
		for i := range load.BatchSize {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"Put":`...)
			b = appendRaftkvPut(b, id, (r.Number-1)*load.BatchSize+uint64(i)+1, r.Key+i, r.Value)
			b = append(b, '}')
		}
		return api.PathBatch, append(b, `]}`...)
	}
	b = append(b, `{"Key":"`...)
	b = load.AppendKey(b, r.Key)
	return api.PathGet, append(b, `"}`...)
}

func appendRaftkvPut(b []byte, id identity, number uint64, key int, value string) []byte {
	b = append(b, `{"Key":"`...)
	b = load.AppendKey(b, key)
	b = append(b, `","Value":"`...)
	b = append(b, value...)
	b = append(b, `","ClientID":"`...)
	b = append(b, id.name...)
	b = append(b, `","RequestID":`...)
	b = strconv.AppendUint(b, number, 10)
	return append(b, '}')
}

var (
	raftkvOK    = []byte(`"RespStatus":"OK"`)
	raftkvFound = []byte(`"KeyFound":true`)
)

func goodRaftkv(op load.Op, answer []byte) bool {
	switch op {
	case load.Batch:
		return bytes.Count(answer, raftkvOK) == 1+load.BatchSize // that of the batch, and one for each put
	case load.Find:
		return bytes.Contains(answer, raftkvFound)
	}
	return bytes.Contains(answer, raftkvOK)
}

// shareRaftkv returns one KVClient with one session.
func shareRaftkv(p Place, timeout time.Duration) (load.Session, error) {
	return &sharedKVClient{kvclient.New(p.Clients), timeout}, nil
}

type sharedKVClient struct {
	client  *kvclient.KVClient
	timeout time.Duration
}

// errShared says that the load asks the shared client for what it is not there for.
var errShared = errors.New("the shared client is for puts and gets")

func (s *sharedKVClient) Do(_ int, r load.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	switch r.Op {
	case load.Put:
		_, err := s.client.Put(ctx, load.Key(r.Key), r.Value)
		return err
	case load.Get:
		_, err := s.client.Get(ctx, load.Key(r.Key))
		return err
	}
	return errShared
}

func (s *sharedKVClient) Close() { s.client.Close() }
