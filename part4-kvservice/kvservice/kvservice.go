// Package kvservice is the service of one server: it puts what clients ask for
// into the log, carries out what comes out of the log, and answers.
package kvservice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	raft "raftkv/part3-persistence"
)

// Raft is what a service needs of a raft.Server.
type Raft interface {
	// Submit is raft.Server.Submit. It must not wait for commitChan.
	Submit(command []byte) (raft.Index, raft.Term, error)
}

// requestTimeout bounds how long a request waits for its entry. A leader that is
// cut off hears of nothing, not even that it has been replaced.
const requestTimeout = 5 * time.Second

// errFailedCommit says all that can be known about a command whose entry has not
// come out of the log: neither yes nor no.
var errFailedCommit = errors.New("the command may or may not be carried out")

// KVService is the service of one server. Its methods may be called by any goroutine.
type KVService struct {
	// Log, if set before ServeHTTP, is told in words what the service does. It is
	// called under a lock and must not block.
	Log func(format string, args ...any)

	id         raft.ServerID
	rs         Raft
	commitChan <-chan raft.CommitEntry

	mu         sync.Mutex
	ds         *DataStore
	commitSubs map[*commitSub]bool // who waits for an entry of this server

	srv  *http.Server
	ctx  context.Context // ends at Shutdown
	quit context.CancelFunc
	wg   sync.WaitGroup
}

// commitSub is a request that waits for its entry.
type commitSub struct {
	// The entry it waits for. The index alone would not do: if this server loses
	// its leadership, another leader may put another command there.
	index raft.Index
	term  raft.Term

	result chan Result // gets one result, or is closed if there will be none
}

// New returns the service of server id over rs, which sends on commitChan. The
// store is empty: rs sends all that is committed, from the beginning. New does
// nothing before ServeHTTP.
func New(id raft.ServerID, rs Raft, commitChan <-chan raft.CommitEntry) *KVService {
	kvs := &KVService{
		id:         id,
		rs:         rs,
		commitChan: commitChan,
		ds:         NewDataStore(),
		commitSubs: make(map[*commitSub]bool),
	}
	kvs.ctx, kvs.quit = context.WithCancel(context.Background())
	return kvs
}

// runUpdater applies what is committed, in the order of the log.
func (kvs *KVService) runUpdater() {
	for {
		select {
		case entry := <-kvs.commitChan:
			kvs.apply(entry)
		case <-kvs.ctx.Done():
			return
		}
	}
}

// apply carries out one committed entry and answers whoever waits for it. It
// depends on nothing but the entries so far: every server does the same.
func (kvs *KVService) apply(entry raft.CommitEntry) {
	kvs.mu.Lock()
	defer kvs.mu.Unlock()
	if entry.Kind == raft.EntryCommand {
		cmd := decodeCommand(entry.Command)
		result := kvs.carryOut(cmd)
		kvs.kvlog("entry %d, term %d: %s %q %q, before %q", entry.Index, entry.Term, cmd.Kind, cmd.Key, cmd.Value, result.ResultValue)
		kvs.popCommitSubscription(entry, result)
	}
	kvs.dropLostSubscriptions(entry.Term)
}

func (kvs *KVService) carryOut(cmd Command) (result Result) {
	switch cmd.Kind {
	case CommandGet:
		result.ResultValue, result.ResultFound = kvs.ds.Get(cmd.Key)
	case CommandPut:
		result.ResultValue, result.ResultFound = kvs.ds.Put(cmd.Key, cmd.Value)
	case CommandAppend:
		result.ResultValue, result.ResultFound = kvs.ds.Append(cmd.Key, cmd.Value)
	case CommandCAS:
		result.ResultValue, result.ResultFound = kvs.ds.CAS(cmd.Key, cmd.CompareValue, cmd.Value)
	default:
		panic(fmt.Sprintf("kvservice: unexpected command %+v", cmd))
	}
	return result
}

// execute puts cmd into the log and waits for what becomes of it. The error is
// errFailedCommit, or that of Submit if nothing has happened.
func (kvs *KVService) execute(ctx context.Context, cmd Command) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sub, err := kvs.createCommitSubscription(cmd)
	if err != nil {
		return Result{}, err
	}
	select {
	case result, ok := <-sub.result:
		if !ok {
			return Result{}, errFailedCommit
		}
		return result, nil
	case <-ctx.Done():
		kvs.cancelCommitSubscription(sub)
		return Result{}, errFailedCommit // the entry lives on without its client
	}
}

// createCommitSubscription puts cmd into the log and subscribes to its entry.
func (kvs *KVService) createCommitSubscription(cmd Command) (*commitSub, error) {
	// Both under the lock that apply takes. A fast commit could otherwise be
	// applied in between, when nobody waits for it yet.
	kvs.mu.Lock()
	defer kvs.mu.Unlock()
	index, term, err := kvs.rs.Submit(cmd.encode())
	if err != nil {
		return nil, err
	}
	sub := &commitSub{index: index, term: term, result: make(chan Result, 1)}
	kvs.commitSubs[sub] = true
	return sub, nil
}

// popCommitSubscription gives the result of an entry to whoever waits for it.
func (kvs *KVService) popCommitSubscription(entry raft.CommitEntry, result Result) {
	for sub := range kvs.commitSubs {
		if sub.index == entry.Index && sub.term == entry.Term {
			sub.result <- result
			delete(kvs.commitSubs, sub)
		}
	}
}

// dropLostSubscriptions ends the wait for entries of a leadership that is over.
// Terms never fall along the log: once an entry of a newer term has come out of
// it, none of an older term will. Every new leader begins with an entry, so this
// one comes soon.
//
// Such an entry is lost, but its client cannot be told "not done". It may have
// asked elsewhere, and another copy may stand in the log.
func (kvs *KVService) dropLostSubscriptions(term raft.Term) {
	for sub := range kvs.commitSubs {
		if sub.term < term {
			kvs.kvlog("a command of term %d is lost", sub.term)
			close(sub.result)
			delete(kvs.commitSubs, sub)
		}
	}
}

// cancelCommitSubscription ends the wait of a client that has gone.
func (kvs *KVService) cancelCommitSubscription(sub *commitSub) {
	kvs.mu.Lock()
	defer kvs.mu.Unlock()
	delete(kvs.commitSubs, sub)
}

func (kvs *KVService) kvlog(format string, args ...any) {
	if kvs.Log != nil {
		kvs.Log("[kv %d] "+format, append([]any{kvs.id}, args...)...)
	}
}
