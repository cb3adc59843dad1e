package kvservice

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// four is a cluster of three voters and a learner.
func four() raft.Configuration {
	c := raft.NewConfiguration(1, 2, 3)
	c.Learners = []raft.ServerID{4}
	return c.WithAddresses(
		raft.Address{ID: 1, Addr: "h:1"}, raft.Address{ID: 2, Addr: "h:2"},
		raft.Address{ID: 3, Addr: "h:3"}, raft.Address{ID: 4, Addr: "h:4", Since: 9})
}

func TestPlanChange(t *testing.T) {
	for _, tc := range []struct {
		name, body       string
		voters, learners []raft.ServerID
		addresses        int
	}{
		{"add", `{"Expected":0,"Add":[{"ID":6,"Raft":"h:6"},{"ID":5,"Raft":"h:5"}]}`, []raft.ServerID{1, 2, 3}, []raft.ServerID{4, 5, 6}, 6},
		{"promote", `{"Expected":0,"Promote":[4]}`, []raft.ServerID{1, 2, 3, 4}, nil, 4},
		{"demote", `{"Expected":0,"Demote":[1,3]}`, []raft.ServerID{2}, []raft.ServerID{1, 3, 4}, 4},
		{"remove a voter and a learner", `{"Expected":0,"Remove":[4,2]}`, []raft.ServerID{1, 3}, nil, 2},
		{"replace", `{"Expected":0,"Promote":[4],"Remove":[1]}`, []raft.ServerID{2, 3, 4}, nil, 3},
		{"replace all", `{"Expected":0,"Promote":[4],"Remove":[1,2,3]}`, []raft.ServerID{4}, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := read(&api.MembersRequest{}, []byte(tc.body), api.Limits{})
			require.NoError(t, err)
			before := four()
			next, err := planChange(before, r)
			require.NoError(t, err)
			require.Equal(t, tc.voters, next.Voters)
			require.Equal(t, tc.learners, next.Learners)
			require.Len(t, next.Addresses, tc.addresses)
			require.True(t, inForce(next, r))
			require.False(t, inForce(before, r))
			require.True(t, before.Equal(four()), "a configuration is never changed")
		})
	}
}

// steered is a Raft whose configuration the test decides.
type steered struct {
	*scriptedRaft
	mu            sync.Mutex
	configuration raft.Configuration
	index         raft.Index
	change        func(expected raft.Index, next raft.Configuration) error
	transfer      func(to raft.ServerID) error
}

func (r *steered) Configuration() (raft.Configuration, raft.Index) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.configuration, r.index
}

func (r *steered) ChangeConfiguration(_ context.Context, expected raft.Index, next raft.Configuration) (raft.Index, error) {
	return 0, r.change(expected, next)
}

func (r *steered) TransferLeadership(_ context.Context, to raft.ServerID) error {
	return r.transfer(to)
}

// put makes a configuration the one in force, with everything committed up to
// commit.
func (r *steered) put(c raft.Configuration, index, commit raft.Index) {
	r.mu.Lock()
	r.configuration, r.index = c, index
	r.mu.Unlock()
	r.setStatus(func(s *raft.Status) { s.CommitIndex, s.ConfigurationIndex = commit, index })
}

func (r *steered) setStatus(change func(*raft.Status)) {
	r.scriptedRaft.mu.Lock()
	defer r.scriptedRaft.mu.Unlock()
	change(&r.status)
}

// steer returns a service whose server leads the cluster four at index 9.
func steer() (*KVService, *steered) {
	r := &steered{scriptedRaft: &scriptedRaft{status: raft.Status{ID: 1, State: raft.Leader, Term: 3, LeaderID: 1}}}
	s := New(Config{ID: 1, HTTPAddrOf: func(id raft.ServerID) string { return fmt.Sprintf("h%d:80", id) }})
	s.attach(r)
	r.put(four(), 9, 9)
	return s, r
}

// A change is answered when its last configuration is committed: neither when
// the joint one is in the log, nor when that is committed.
func TestChangeIsAnsweredWhenItIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := steer()
		var next raft.Configuration
		r.change = func(expected raft.Index, n raft.Configuration) error {
			require.EqualValues(t, 9, expected)
			next = n
			return nil
		}
		p := goPost(s, api.PathAdminMembers, `{"Expected":9,"Promote":[4],"Remove":[1]}`)
		joint := next
		joint.OldVoters = four().Voters
		for _, step := range []struct {
			c             raft.Configuration
			index, commit raft.Index
		}{{joint, 10, 9}, {joint, 10, 10}, {next, 11, 10}} {
			r.put(step.c, step.index, step.commit)
			<-time.After(time.Second) // of the bubble
			require.False(t, p.isDone(), "%+v", step)
		}
		r.put(next, 11, 11)
		<-p.done
		require.Equal(t, 200, p.code, p.body)
		require.JSONEq(t, `{"RespStatus":"OK","Outcome":"applied","Index":11,"Voters":[2,3,4],"Leader":1,"LeaderHTTP":"h1:80","Members":[
			{"ID":2,"Raft":"h:2","HTTP":"h2:80","Role":"voter"},{"ID":3,"Raft":"h:3","HTTP":"h3:80","Role":"voter"},{"ID":4,"Raft":"h:4","HTTP":"h4:80","Role":"voter","Since":9}]}`, p.body)
	})
}

// A command that is repeated while its own change is half way waits for the end of
// it, whichever configuration it has seen; another change is for later.
func TestChangeIsRepeatedHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := steer()
		r.change = func(raft.Index, raft.Configuration) error {
			t.Error("nothing is to be asked for")
			return raft.ErrChanging
		}
		next := raft.NewConfiguration(2, 3, 4).WithAddresses(four().Addresses...)
		joint := next
		joint.OldVoters = four().Voters
		r.put(joint, 10, 10)
		first := goPost(s, api.PathAdminMembers, `{"Expected":9,"Promote":[4],"Remove":[1]}`)
		second := goPost(s, api.PathAdminMembers, `{"Expected":10,"Remove":[1]}`)
		other := goPost(s, api.PathAdminMembers, `{"Expected":10,"Remove":[2]}`)
		<-other.done
		require.Equal(t, 503, other.code, other.body)
		require.False(t, first.isDone())
		require.False(t, second.isDone())
		r.put(next, 11, 11)
		<-first.done
		<-second.done
		require.Equal(t, 200, first.code, first.body)
		require.Equal(t, 200, second.code, second.body)
	})
}

// Even if the joint configuration has every server that was asked for.
func TestPromotionIsAnsweredWhenItIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := steer()
		next := raft.NewConfiguration(1, 2, 3, 4).WithAddresses(four().Addresses...)
		joint := next
		joint.OldVoters = four().Voters
		r.change = func(raft.Index, raft.Configuration) error { return nil }
		p := goPost(s, api.PathAdminMembers, `{"Expected":9,"Promote":[4]}`)
		r.put(joint, 10, 10)
		<-time.After(time.Second)
		require.False(t, p.isDone())
		r.put(next, 11, 11)
		<-p.done
		require.Equal(t, 200, p.code, p.body)
	})
}

// The answer was lost and the client asks again: the change was made, once.
func TestRepeatedChangeIsHarmless(t *testing.T) {
	s, r := steer()
	changes := 0
	r.change = func(_ raft.Index, next raft.Configuration) error {
		now, _ := r.Configuration()
		if !next.Equal(now) {
			changes++
		}
		return nil
	}
	for _, body := range []string{
		`{"Expected":5,"Add":[{"ID":4,"Raft":"h:4"}]}`,
		`{"Expected":5,"Promote":[3]}`,
		`{"Expected":5,"Demote":[4]}`,
		`{"Expected":5,"Remove":[7]}`,
	} {
		code, answer := post(s, api.PathAdminMembers, body)
		require.Equal(t, 200, code, answer)
		require.Contains(t, answer, `"Index":9`)
	}
	require.Zero(t, changes)

	// What is not in force was not what came in between.
	code, answer := post(s, api.PathAdminMembers, `{"Expected":5,"Remove":[3]}`)
	require.Equal(t, 409, code)
	require.Contains(t, answer, `"RespStatus":"ConfigurationChanged","Outcome":"not_applied"`)
	code, answer = post(s, api.PathAdminMembers, `{"Expected":5,"Add":[{"ID":4,"Raft":"elsewhere:4"}]}`)
	require.Equal(t, 409, code, answer)
}

func TestChangeThatIsRefusedOrLost(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *steered) error
		want   string
	}{
		"changed meanwhile":   {func(*steered) error { return raft.ErrChanged }, `"RespStatus":"ConfigurationChanged","Outcome":"not_applied"`},
		"another under way":   {func(*steered) error { return raft.ErrChanging }, `"RespStatus":"Busy","Outcome":"not_applied"`},
		"handing over":        {func(*steered) error { return raft.ErrTransferring }, `"RespStatus":"Busy","Outcome":"not_applied"`},
		"too much to do":      {func(*steered) error { return raft.ErrBusy }, `"RespStatus":"Busy","Outcome":"not_applied"`},
		"not caught up":       {func(*steered) error { return fmt.Errorf("server 4: %w", raft.ErrNotCaughtUp) }, `"RespStatus":"NotCaughtUp","Outcome":"not_applied"`},
		"not leader any more": {func(*steered) error { return &raft.NotLeaderError{Leader: 2} }, `"RespStatus":"NotLeader","Outcome":"not_applied"`},
		"what we did not see": {func(*steered) error { return fmt.Errorf("%w: odd", raft.ErrConfig) }, `"RespStatus":"BadRequest","Outcome":"not_applied"`},
		"stopping":            {func(*steered) error { return io.ErrClosedPipe }, `"RespStatus":"FailedCommit","Outcome":"unknown"`},
		"no majority":         {func(*steered) error { return nil }, `"RespStatus":"Timeout","Outcome":"unknown"`},
		"leadership lost":     {func(r *steered) error { r.setStatus(func(s *raft.Status) { s.State = raft.Follower }); return nil }, `"RespStatus":"FailedCommit","Outcome":"unknown"`},
		"lost and won back":   {func(r *steered) error { r.setStatus(func(s *raft.Status) { s.Term++ }); return nil }, `"RespStatus":"FailedCommit","Outcome":"unknown"`},
		"the leader was removed": {func(r *steered) error {
			r.setStatus(func(s *raft.Status) { s.State = raft.Follower })
			r.put(raft.NewConfiguration(2, 3), 11, 11)
			return nil
		}, `"RespStatus":"OK","Outcome":"applied"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := steer()
				r.change = func(raft.Index, raft.Configuration) error { return tc.change(r) }
				_, answer := post(s, api.PathAdminMembers, `{"Expected":9,"Remove":[1]}`)
				require.Contains(t, answer, tc.want)
			})
		})
	}
}

func TestTransferAnswers(t *testing.T) {
	leads := func(leader raft.ServerID, err error) func(r *steered) error {
		return func(r *steered) error {
			r.setStatus(func(s *raft.Status) { s.LeaderID = leader })
			return err
		}
	}
	for name, tc := range map[string]struct {
		to   string
		raft func(r *steered) error
		want string
	}{
		"to anybody":         {`{}`, leads(3, nil), `{"RespStatus":"OK","Outcome":"applied","Leader":3,"LeaderHTTP":"h3:80"}`},
		"to the one":         {`{"To":2}`, leads(2, nil), `{"RespStatus":"OK","Outcome":"applied","Leader":2`},
		"another one won":    {`{"To":2}`, leads(3, nil), `{"RespStatus":"Busy","Outcome":"not_applied","Leader":3`},
		"to a learner":       {`{"To":4}`, leads(1, raft.ErrNotVoter), `{"RespStatus":"BadRequest","Outcome":"not_applied"`},
		"alone":              {`{}`, leads(1, raft.ErrNotVoter), `"Error":"there is no other voter to lead"`},
		"not in time":        {`{"To":2}`, leads(1, raft.ErrTransferAborted), `{"RespStatus":"Timeout","Outcome":"unknown","Leader":1`},
		"another under way":  {`{"To":2}`, leads(1, raft.ErrTransferring), `{"RespStatus":"Busy","Outcome":"not_applied","Leader":1`},
		"nobody is elected":  {`{"To":2}`, leads(0, nil), `{"RespStatus":"Timeout","Outcome":"unknown"`},
		"not the leader now": {`{"To":2}`, leads(3, &raft.NotLeaderError{Leader: 3}), `{"RespStatus":"NotLeader","Outcome":"not_applied","Leader":3`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := steer()
				r.transfer = func(raft.ServerID) error { return tc.raft(r) }
				_, answer := post(s, api.PathAdminTransfer, tc.to)
				require.Contains(t, answer, tc.want)
			})
		})
	}
}

// Requests for the leader are forwarded once, whatever their method was.
func TestAdminIsForwardedOnce(t *testing.T) {
	s, r := steer()
	r.setStatus(func(st *raft.Status) { st.State, st.LeaderID = raft.Follower, 2 })
	leader, _ := steer()
	var forwarded []string
	r.call = func(payload []byte) ([]byte, error) {
		line, body, _ := splitLine(payload)
		path, id, _ := strings.Cut(line, " ")
		require.NotEmpty(t, id, "the leader's log would not name the request")
		forwarded = append(forwarded, path+string(body))
		return leader.HandleForwarded(t.Context(), 1, payload), nil
	}
	code, body := get(s, api.PathAdminMembers)
	require.Equal(t, 200, code)
	require.Contains(t, body, `"Learners":[4]`)
	_, body = post(s, api.PathAdminMembers, `{"Expected":9,"Remove":[7]}`)
	require.Contains(t, body, "server 7 is not a member")
	require.Equal(t, []string{listMembersPath, api.PathAdminMembers + `{"Expected":9,"Remove":[7]}`}, forwarded)

	// Two that take each other for the leader.
	r.setStatus(func(st *raft.Status) { st.LeaderID = raft.None })
	require.Contains(t, string(s.HandleForwarded(t.Context(), 2, []byte(listMembersPath+"\n"))), `"RespStatus":"NotLeader"`)
	// A snapshot is of the server that was asked.
	require.Contains(t, string(s.HandleForwarded(t.Context(), 2, []byte(api.PathAdminSnapshot+"\n{}"))), `"RespStatus":"NotFound"`)
}

func get(s *KVService, path string) (int, string) {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestAdminDoors(t *testing.T) {
	s, _ := steer()
	for _, tc := range []struct {
		method, path, allow string
		code                int
	}{
		{http.MethodGet, "/admin/transfer", "POST", 405},
		{http.MethodDelete, "/admin/members", "GET, POST", 405},
		{http.MethodPut, "/admin/snapshot/", "GET, POST", 405},
		{http.MethodGet, "/admin", "", 404},
		{http.MethodGet, "/admin/members/1", "", 404},
		{http.MethodPost, "/admin/members", "", 415},
		{http.MethodGet, "/admin/members/", "", 200},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		require.Equal(t, tc.code, w.Code, "%s %s", tc.method, tc.path)
		require.Equal(t, tc.allow, w.Header().Get("Allow"), "%s %s", tc.method, tc.path)
	}
	for _, body := range []string{``, `{}`, `{"Expected":9,"remove":[1]}`, `{"Expected":9,"Remove":[1]} x`} {
		code, answer := post(s, api.PathAdminMembers, body)
		require.Equal(t, 400, code, answer)
	}
	code, _ := post(s, api.PathAdminSnapshot, `{"Server":2}`)
	require.Equal(t, 400, code)
	code, _ = get(s, api.PathAdminSnapshot+"?consistency=lease")
	require.Equal(t, 400, code)
}

// What GET /admin/snapshot sends is the store, with everything that was answered.
func TestSavedSnapshotIsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		p := goPost(s, "/put", putX1)
		r.readIndex = 3 // committed, and not applied yet
		var code int
		var file string
		saved := make(chan struct{})
		go func() {
			code, file = get(s, api.PathAdminSnapshot)
			close(saved)
		}()
		synctest.Wait()
		r.commit()
		<-p.done
		<-saved
		require.Equal(t, 200, code)
		header, body, err := ReadSnapshotFile(bytes.NewReader([]byte(file)))
		require.NoError(t, err)
		require.EqualValues(t, 3, header.Index)
		m, err := machine.ReadSnapshot(body)
		require.NoError(t, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, s.machine.Hash(), m.Hash())
	})
}

// Nobody can say whether this state is the latest, so it is not sent unless that
// does not matter.
func TestSavedSnapshotIsNotStaleUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		r.readError = &raft.NotLeaderError{}
		code, body := get(s, api.PathAdminSnapshot)
		require.Equal(t, 503, code)
		require.Contains(t, body, `"RespStatus":"NotLeader"`)
		code, _ = get(s, api.PathAdminSnapshot+"?consistency=stale")
		require.Equal(t, 200, code)
	})
}

// join starts a node that waits to be added.
func (s *system) join(id raft.ServerID) {
	s.t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(s.t, err)
	s.logs[id] = &logBuffer{}
	var cluster uint64
	for other := range s.nodes {
		fmt.Sscanf(s.status(other).Cluster, "%x", &cluster)
	}
	n, err := Start(NodeConfig{
		ID: id, Data: filepath.Join(s.dir, fmt.Sprint(id)), HTTPAddr: "127.0.0.1:0",
		RaftAddr: l.Addr().String(), RaftListener: l, Join: raft.ClusterID(cluster),
		Duplicates: s.duplicates[id],
		Logger:     slog.New(slog.NewTextHandler(s.logs[id], nil)),
	})
	require.NoError(s.t, err)
	s.nodes[id] = n
}

// change makes a change of the members through node id, and repeats it while the
// answer is that it may be.
func (s *system) change(id raft.ServerID, format string, args ...any) (r api.MembersResponse) {
	s.t.Helper()
	var body string
	s.eventually("a change", func() bool {
		var now api.MembersResponse
		resp, err := s.client.Get("http://" + s.nodes[id].HTTPAddr() + api.PathAdminMembers)
		require.NoError(s.t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, api.DecodeResponse(data, &now))
		if now.RespStatus != api.StatusOK {
			return false // nobody leads
		}
		expected := fmt.Sprintf(`{"Expected":%d,`, now.Index)
		var code int
		code, body = s.post(id, api.PathAdminMembers, expected+fmt.Sprintf(format, args...))
		return code != http.StatusServiceUnavailable
	})
	r = api.MembersResponse{}
	require.NoError(s.t, api.DecodeResponse([]byte(body), &r))
	require.Equal(s.t, api.StatusOK, r.RespStatus, body)
	return r
}

// Everything that makes no sense is refused, in words, before anything is
// appended (pitfall MB-11), through a follower as well.
func TestSystemChangesThatMakeNoSenseAppendNothing(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	follower := leader%3 + 1
	r := s.change(leader, `"Add":[{"ID":4,"Raft":"127.0.0.1:1"}]}`) // nobody is there
	last := s.status(leader).LastIndex
	refused := func(via raft.ServerID, body, status, text string) {
		t.Helper()
		_, answer := s.post(via, api.PathAdminMembers, body)
		require.Contains(t, answer, `"RespStatus":"`+status+`","Outcome":"not_applied"`, body)
		require.Contains(t, answer, text, body)
		require.NotContains(t, answer, `\n`)
	}
	for _, via := range []raft.ServerID{leader, follower} {
		for _, tc := range []struct{ body, status, text string }{
			{`"Remove":[1,2,3]`, "BadRequest", "no voter would be left"},
			{`"Demote":[1,2,3]`, "BadRequest", "no voter would be left"},
			{`"Remove":[1,2,3],"Add":[{"ID":5,"Raft":"127.0.0.1:2"}]`, "BadRequest", "no voter would be left"},
			{`"Remove":[]`, "BadRequest", "no change is named"},
			{`"Remove":[2,2]`, "BadRequest", "server 2 is named twice"},
			{`"Remove":[9]`, "BadRequest", "server 9 is not a member"},
			{`"Promote":[9]`, "BadRequest", "server 9 is not a member; add it first"},
			{`"Promote":[2]`, "BadRequest", "server 2 is a voter already"},
			{`"Promote":[4]`, "NotCaughtUp", "server 4"},
			{`"Demote":[4]`, "BadRequest", "server 4 is a learner already"},
			{`"Demote":[9]`, "BadRequest", "server 9 is not a member"},
			{`"Add":[{"ID":0,"Raft":"127.0.0.1:2"}]`, "BadRequest", "ids start at 1"},
			{`"Add":[{"ID":2,"Raft":"127.0.0.1:2"}]`, "BadRequest", "server 2 is a member already"},
			{`"Add":[{"ID":4,"Raft":"127.0.0.1:2"}]`, "BadRequest", "server 4 is a member already, at 127.0.0.1:1"},
			{`"Add":[{"ID":5,"Raft":"127.0.0.1:1"}]`, "BadRequest", "the address 127.0.0.1:1 is that of server 4"},
			{`"Add":[{"ID":5,"Raft":"127.0.0.1:2"},{"ID":6,"Raft":"127.0.0.1:2"}]`, "BadRequest", "have the same address"},
			{`"Add":[{"ID":5,"Raft":"nowhere"}]`, "BadRequest", "it has no port"},
		} {
			refused(via, fmt.Sprintf(`{"Expected":%d,%s}`, r.Index, tc.body), tc.status, tc.text)
		}
		refused(via, `{"Expected":12345,"Remove":[3]}`, "ConfigurationChanged", "is in force, not 12345")
	}
	require.Equal(t, last, s.status(leader).LastIndex, "the log has grown")
	require.Equal(t, r.Configuration, s.status(leader).Configuration)
}

// A server joins, gets the store, votes, leads; then those of the beginning go.
func TestSystemEveryServerIsReplaced(t *testing.T) {
	s := newSystem(t)
	code, body := s.post(s.leader(), "/put", `{"Key":"k","Value":"v","ClientID":"c","RequestID":1}`)
	require.Equal(t, 200, code, body)
	via := s.leader()
	s.join(4)
	r := s.change(via, `"Add":[{"ID":4,"Raft":"%s"}]}`, s.nodes[4].RaftAddr())
	require.Equal(t, []uint64{4}, r.Learners)
	r = s.change(via, `"Promote":[4],"Remove":[1,2,3]}`)
	require.Equal(t, []uint64{4}, r.Voters)
	require.Nil(t, r.OldVoters)
	s.eventually("server 4 leads", func() bool { return s.status(4).Role == "leader" })
	for _, id := range []raft.ServerID{1, 2, 3} {
		s.stop(id)
	}
	code, body = s.post(4, "/put", `{"Key":"k","Value":"v","ClientID":"c","RequestID":1}`)
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"Duplicate":true`, "the session came along")
	require.Equal(t, []api.Member{{ID: 4, Raft: s.nodes[4].RaftAddr(), HTTP: s.nodes[4].HTTPAddr(), Role: api.RoleVoter, Since: 4, Match: s.status(4).LastIndex}}, s.status(4).Members)
}

func TestSystemTransferAndSnapshot(t *testing.T) {
	s := newSystem(t)
	leader := s.leader()
	to := leader%3 + 1
	code, body := s.post(to, api.PathAdminTransfer, fmt.Sprintf(`{"To":%d}`, to))
	require.Equal(t, 200, code, body)
	require.Contains(t, body, fmt.Sprintf(`"Leader":%d`, to))
	require.Equal(t, to, s.leader())
	code, body = s.post(to, api.PathAdminTransfer, `{"To":7}`)
	require.Equal(t, 400, code)
	require.Contains(t, body, "server 7 cannot lead")

	code, body = s.post(leader, api.PathAdminSnapshot, `{}`) // any server, not only the leader
	require.Equal(t, 200, code, body)
	var taken api.SnapshotResponse
	require.NoError(t, api.DecodeResponse([]byte(body), &taken))
	s.eventually("the snapshot is in the status", func() bool { return s.status(leader).SnapshotIndex == taken.Index })
	require.NotZero(t, taken.Bytes)
	status := s.status(to)
	require.Equal(t, []uint64{1, 2, 3}, status.Configuration.Voters)
	require.True(t, slices.IsSortedFunc(status.Members, func(a, b api.Member) int { return int(a.ID) - int(b.ID) }))
}
