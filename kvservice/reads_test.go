package kvservice

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/kvservice/machine"
	"raftkv/raft"
	"raftkv/raft/server"
)

const getX = `{"Key":"x"}`

// A read is answered from the state at the index that the leader has named,
// or a later one, and never before (RD-03).
func TestReadWaitsForItsIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		r.readIndex = raft.Index(len(r.log)) // committed, and not applied here yet
		read := goPost(s, "/get", getX)
		require.False(t, read.isDone(), "the state is older than the read may be")
		r.commit()
		<-p.done
		<-read.done
		require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"Value":"1","Version":1}`, read.body)
		require.Empty(t, s.readers)
	})
}

// Whoever waits for an index that does not come is told so and leaves nothing.
func TestReadThatIsNotAppliedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.readIndex = raft.Index(len(r.log)) + 1
		code, body := post(s, "/get", getX)
		require.Equal(t, 504, code)
		require.Contains(t, body, "has not applied in time")
		require.Empty(t, s.readers)
	})
}

// Every reason not to answer a read can be retried, and says so.
func TestReadRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		text string
	}{
		"not the leader": {&raft.NotLeaderError{Leader: 2, Term: 1}, 503, "no leader has confirmed"},
		"full":           {raft.ErrBusy, 503, "too many reads"},
		"stopping":       {server.ErrStopped, 503, "stopping"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := serve(t)
			r.readError = c.err
			code, body := post(s, "/get", getX)
			require.Equal(t, c.code, code, name)
			require.Contains(t, body, c.text, name)
		})
	}
}

// A follower answers reads itself: it asks the leader only how far its own state
// must have come.
func TestFollowerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		post2(s, r, "/put", putX1)
		s.follow(r, 2, 2)
		var asked []byte
		answer := []byte("OK\n4")
		var err error
		r.call = func(payload []byte) ([]byte, error) {
			asked = payload
			return answer, err
		}
		read := goPost(s, "/get", `{"Key":"x","Consistency":"lease"}`)
		require.Equal(t, "read-index\nlease", string(asked))
		require.False(t, read.isDone(), "the leader has more than we have")
		r.append(machine.Command{Kind: machine.KindPut, Key: "x", Value: "2", Nonce: machine.Nonce{1}}.Encode())
		r.commit()
		<-read.done
		require.Contains(t, read.body, `"Value":"2"`)

		for text, set := range map[string]func(){
			"does not lead":             func() { answer = []byte("NotLeader\n") },
			"does not lead (any more)":  func() { answer = []byte("OK\nx") },
			"cannot be reached":         func() { err = server.ErrNotSent },
			"the leader's answer was l": func() { err = errors.New("connection reset") },
		} {
			answer, err = []byte("OK\n4"), nil
			set()
			code, body := post(s, "/get", getX)
			require.Equal(t, 503, code, text)
			require.Contains(t, body, text)
		}
	})
}

// The leader tells its followers an index, by its lease if they ask for that.
func TestReadIndexForAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.readIndex = 2
		require.Equal(t, "OK\n2", string(s.HandleForwarded(t.Context(), 2, []byte("read-index\n"))))
		r.readError = &raft.NotLeaderError{}
		require.Equal(t, "NotLeader\n", string(s.HandleForwarded(t.Context(), 2, []byte("read-index\n"))))
		require.Equal(t, "NotLeader\n", string(s.HandleForwarded(t.Context(), 2, []byte("read-index\nlease"))), "no lease: ask the others")
		r.lease = true
		require.Equal(t, "OK\n2", string(s.HandleForwarded(t.Context(), 2, []byte("read-index\nlease"))))
		code, _ := post(s, "/read-index", "")
		require.Equal(t, 404, code, "it is no request of clients")
	})
}

// A stale read is answered by whoever is asked, says that it may be old, and how
// old: since this server last had everything that it knew to be committed.
func TestStaleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		post2(s, r, "/put", putX1)
		s.follow(r, 2, raft.None)
		const stale = `{"Key":"x","Consistency":"stale"}`
		_, body := post(s, "/get", stale)
		require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"Value":"1","Version":1,"Stale":true,"AppliedIndex":3}`, body, "never heard of a leader: no age")

		r.heardAt, r.readIndex = time.Now(), 3
		<-time.After(40 * time.Millisecond)
		_, body = post(s, "/get", stale)
		require.Contains(t, body, `"AgeMillis":40`)

		r.heardAt, r.readIndex = time.Now(), 4 // a leader has more than is applied here
		<-time.After(2 * time.Millisecond)
		_, body = post(s, "/get", stale)
		require.Contains(t, body, `"AgeMillis":42`, "not fresher than it was")
	})
}

// An installed snapshot replaces the state: sessions, configuration and all; and
// the reads that waited for what it holds go on.
func TestInstalledSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := machine.New()
		for i, c := range []machine.Command{
			{Kind: machine.KindSettings, Settings: machine.DefaultSettings()},
			{Kind: machine.KindAppend, Key: "x", Value: "a", ClientID: "c", RequestID: 1},
		} {
			_, err := from.Apply(raft.CommitEntry{Index: raft.Index(i) + 1, Term: 3, Command: c.Encode()})
			require.NoError(t, err)
		}
		var bytes bytes.Buffer
		require.NoError(t, from.WriteSnapshot(&bytes))

		s, r := serve(t)
		s.follow(r, 3, 2)
		installed := &closed{Reader: strings.NewReader(bytes.String())}
		r.call = func([]byte) ([]byte, error) { return []byte("OK\n2"), nil }
		s.machine = machine.New()
		read := goPost(s, "/get", getX)
		require.False(t, read.isDone())
		configuration := raft.NewConfiguration(1, 2)
		r.commits <- raft.CommitEntry{Index: 2, Term: 3, Kind: raft.EntrySnapshot, Installed: &raft.InstalledSnapshot{
			Snapshot: raft.Snapshot{Index: 2, Term: 3, Configuration: configuration, ConfigurationIndex: 1}, Data: installed}}
		<-read.done
		synctest.Wait() // the answer may come before the updater is done with the entry
		require.Contains(t, read.body, `"Value":"a"`)
		require.True(t, installed.closed)
		require.Equal(t, from.Hash(), s.machine.Hash())
		require.Equal(t, applied{raft.LogPosition{Index: 2, Term: 3}, configuration, 1}, s.applied)
	})
}

type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

// Snapshots are taken by themselves when enough was written, one at a time, and
// say which configuration was the latest.
func TestSnapshotsByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		s.config.SnapshotBytes = 1000
		s.applied.configuration = raft.NewConfiguration(1)
		var taken []raft.Snapshot
		r.taken = func(snapshot raft.Snapshot, size int) {
			require.Positive(t, size)
			taken = append(taken, snapshot)
		}
		next := raft.NewConfiguration(1, 2)
		r.log = append(r.log, raft.LogEntry{Term: 1, Kind: raft.EntryConfiguration, Command: next.AppendTo(nil)})
		for range 3 {
			r.append(machine.Command{Kind: machine.KindPut, Key: "x", Value: strings.Repeat("v", 400), Nonce: machine.Nonce{1}}.Encode())
			r.commit()
			synctest.Wait()
		}
		require.Equal(t, []raft.Snapshot{{Index: 6, Term: 1, Configuration: next, ConfigurationIndex: 3}}, taken)

		_, _, err := s.TakeSnapshot(t.Context())
		require.NoError(t, err)
		require.Len(t, taken, 2, "by request")
		s.applied.configuration = raft.Configuration{}
		_, _, err = s.TakeSnapshot(t.Context())
		require.ErrorIs(t, err, ErrNothingToSnapshot, "nobody could go on from a state without members")
	})
}

// A scan waits for its index as a get does, brings one state, and goes on where
// it ended, whichever server is asked next.
func TestScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		for _, key := range []string{"a", "b/2", "b/1"} {
			post2(s, r, "/put", `{"Key":"`+key+`","Value":"v"}`)
		}
		write := goPost(s, "/put", `{"Key":"b/3","Value":"v"}`)
		r.readIndex = raft.Index(len(r.log)) // committed, and not applied here yet
		scan := goPost(s, "/scan", `{"Prefix":"b/","Limit":2}`)
		require.False(t, scan.isDone(), "the state is older than the scan may be")
		r.commit()
		<-write.done
		<-scan.done
		require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","Items":[{"Key":"b/1","Value":"v","Version":3},{"Key":"b/2","Value":"v","Version":2}],"Next":"b/2","AppliedIndex":6}`, scan.body)
		_, body := post(s, "/scan", `{"Prefix":"b/","After":"b/2","Consistency":"stale"}`)
		require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","Items":[{"Key":"b/3","Value":"v","Version":4}],"Stale":true,"AppliedIndex":6}`, body)
		_, body = post(s, "/scan", `{"Prefix":"c"}`)
		require.Contains(t, body, `"Items":[],`)
	})
}

// An answer is bounded in bytes too, and always has one item.
func TestScanOfLargeValues(t *testing.T) {
	s, _ := newInstant(t, nil)
	large := strings.Repeat("v", 1<<20)
	for _, key := range []string{"a", "b"} {
		post(s, "/put", `{"Key":"`+key+`","Value":"`+large+`"}`)
	}
	_, body := post(s, "/scan", `{"Prefix":""}`)
	require.Contains(t, body, `"Next":"a"`)
	require.Less(t, len(body), 1<<20+1000)
}
