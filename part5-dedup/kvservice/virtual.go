package kvservice

import (
	"maps"

	raft "raftkv/part3-persistence"
	"raftkv/part5-dedup/api"
)

// Virtual is a service in virtual time: no goroutine, no HTTP, no clock. Whoever
// has one brings it the committed entries and carries its answers, as rafttest and
// raftlab play do. It decides like any KVService, by the same code. It must be
// used by one goroutine at a time.
type Virtual struct{ kvs *KVService }

// NewVirtual returns the service of server id over rs.
func NewVirtual(id raft.ServerID, rs Raft) Virtual { return Virtual{New(id, rs, nil)} }

// Start puts a command into the log. The function that it returns says what is to
// be answered; ok is false as long as the client has to wait.
func (v Virtual) Start(cmd Command) (answer func() (status api.ResponseStatus, result Result, ok bool)) {
	sub, err := v.kvs.createCommitSubscription(cmd)
	return func() (api.ResponseStatus, Result, bool) {
		if err != nil {
			return head(err).RespStatus, Result{}, true
		}
		select {
		case result, ok := <-sub.result:
			if !ok {
				return head(errFailedCommit).RespStatus, Result{}, true
			}
			if result.IsDuplicate {
				return head(errDuplicateRequest).RespStatus, Result{}, true
			}
			return head(nil).RespStatus, result, true
		default:
			return "", Result{}, false
		}
	}
}

// Apply carries out one committed entry.
func (v Virtual) Apply(entry raft.CommitEntry) { v.kvs.apply(entry) }

// Data returns all keys and values.
func (v Virtual) Data() map[string]string { return maps.Clone(v.kvs.ds.data) }

// LastRequestIDs returns, for each client, the highest RequestID of its commands
// that were carried out.
func (v Virtual) LastRequestIDs() map[int64]int64 { return maps.Clone(v.kvs.lastRequestIDPerClient) }
