package kvservice

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"raftkv/api"
	"raftkv/raft"
)

// scanOf asks for a page.
func scanOf(t require.TestingT, s *KVService, r api.ScanRequest) (int, api.ScanResponse) {
	body, err := api.Encode(&r)
	require.NoError(t, err)
	code, answer := post(s, api.PathScan, string(body))
	var page api.ScanResponse
	require.NoError(t, api.DecodeResponse([]byte(answer), &page), answer)
	return code, page
}

func putKey(s *KVService, key, value string) {
	post(s, api.PathPut, fmt.Sprintf(`{"Key":%q,"Value":%q}`, key, value))
}

// What is written between two pages does not show in the second, unless it is
// asked for the newest state.
func TestScanGoesOnInOneState(t *testing.T) {
	s, _ := newInstant(t, nil)
	putKey(s, "a", "1")
	putKey(s, "b", "1")
	_, first := scanOf(t, s, api.ScanRequest{Limit: 1})
	require.Equal(t, "a", first.Next)
	putKey(s, "b", "2")
	putKey(s, "c", "2")
	_, second := scanOf(t, s, api.ScanRequest{After: "a", At: first.AppliedIndex})
	require.Equal(t, []api.Item{{Key: "b", Value: "1", Version: 2}}, second.Items)
	require.Equal(t, first.AppliedIndex, second.AppliedIndex)
	_, newest := scanOf(t, s, api.ScanRequest{After: "a"})
	require.Len(t, newest.Items, 2)
	require.Greater(t, newest.AppliedIndex, first.AppliedIndex)
}

// Scans that run beside each other and beside writes each see the state that was
// there at their first page, all of it and nothing twice.
func TestScansAreOfOneState(t *testing.T) {
	type scan struct {
		want map[string]string
		next api.ScanRequest
	}
	rapid.Check(t, func(rt *rapid.T) {
		s, _ := newInstant(t, nil)
		key := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 1, 3, -1)
		model := map[string]string{}
		var scans []*scan
		begun := 0
		page := func(c *scan) {
			c.next.Limit = rapid.IntRange(1, 4).Draw(rt, "limit")
			code, got := scanOf(rt, s, c.next)
			require.Equal(rt, 200, code)
			for _, item := range got.Items {
				require.Equal(rt, c.want[item.Key], item.Value)
				require.Contains(rt, c.want, item.Key)
				delete(c.want, item.Key)
			}
			c.next.After, c.next.At = got.Next, got.AppliedIndex
			if got.Next == "" {
				require.Empty(rt, c.want)
				for i := range scans {
					if scans[i] == c {
						scans = append(scans[:i], scans[i+1:]...)
						break
					}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				k, v := key.Draw(rt, "key"), rapid.StringOfN(rapid.SampledFrom([]rune("xy")), 0, 3, -1).Draw(rt, "value")
				putKey(s, k, v)
				model[k] = v
			},
			"delete": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				post(s, api.PathDelete, fmt.Sprintf(`{"Key":%q}`, k))
				delete(model, k)
			},
			"begin": func(rt *rapid.T) {
				if begun == keptScans {
					return // there is no room for more states
				}
				begun++
				prefix := rapid.SampledFrom([]string{"", "a", "ab"}).Draw(rt, "prefix")
				c := &scan{want: map[string]string{}, next: api.ScanRequest{Prefix: prefix}}
				for k, v := range model {
					if len(k) >= len(prefix) && k[:len(prefix)] == prefix {
						c.want[k] = v
					}
				}
				scans = append(scans, c)
				page(c)
			},
			"go on": func(rt *rapid.T) {
				if len(scans) > 0 {
					page(scans[rapid.IntRange(0, len(scans)-1).Draw(rt, "scan")])
				}
			},
		})
	})
}

// kept returns how many states are kept.
func kept(s *KVService) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.scans)
}

// begun begins a scan in a state of its own and returns what goes on with it.
func begun(t *testing.T, s *KVService) api.ScanRequest {
	putKey(s, "a", "1")
	putKey(s, "b", "1")
	_, page := scanOf(t, s, api.ScanRequest{Limit: 1})
	return api.ScanRequest{After: page.Next, At: page.AppliedIndex}
}

func requireExpired(t *testing.T, s *KVService, r api.ScanRequest) {
	t.Helper()
	code, answer := scanOf(t, s, r)
	require.Equal(t, 410, code)
	require.Equal(t, api.StatusScanExpired, answer.RespStatus)
	require.Equal(t, api.OutcomeNotApplied, answer.Outcome)
	require.Contains(t, answer.Error, "begin the scan again")
}

// A state is let go when nobody has read it for a minute, also if nobody asks for
// anything any more.
func TestScanExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newInstant(t, nil)
		early, late := begun(t, s), begun(t, s)
		putKey(s, "b", "2")
		for range 3 {
			<-time.After(scanIdle - time.Millisecond)
			code, _ := scanOf(t, s, late)
			require.Equal(t, 200, code)
		}
		requireExpired(t, s, early)
		require.Equal(t, 1, kept(s))
		<-time.After(scanIdle)
		synctest.Wait()
		require.Zero(t, kept(s), "nobody had to ask")
		requireExpired(t, s, late)
	})
}

// A scan that begins drives out the one that was idle for longest, but none that
// is under way: then it cannot go on itself.
func TestScansAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newInstant(t, nil)
		var all []api.ScanRequest
		for range keptScans {
			all = append(all, begun(t, s))
		}
		tooMany := begun(t, s)
		putKey(s, "b", "2")
		requireExpired(t, s, tooMany)
		require.Equal(t, keptScans, kept(s))
		<-time.After(scanGrace)
		scanOf(t, s, all[0])
		last := begun(t, s)
		putKey(s, "b", "2")
		requireExpired(t, s, all[1])
		for _, r := range append(all[2:], all[0], last) {
			code, _ := scanOf(t, s, r)
			require.Equal(t, 200, code)
		}
		require.Equal(t, keptScans, kept(s))
	})
}

// Scans that begin in one state share it, and one that has all on one page keeps
// none.
func TestScansShareAState(t *testing.T) {
	s, _ := newInstant(t, nil)
	begun(t, s)
	scanOf(t, s, api.ScanRequest{Limit: 1})
	scanOf(t, s, api.ScanRequest{})
	require.Equal(t, 1, kept(s))
}

// A page that may be old says so, and so does each that goes on with it, whatever
// level that asks for. One that goes on with a confirmed state is not marked: the
// scan is as fresh as its first page.
func TestStaleScansAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newInstant(t, nil)
		putKey(s, "a", "1")
		putKey(s, "b", "1")
		r.heardAt, r.readIndex = time.Now(), 4
		<-time.After(3 * time.Millisecond)
		_, first := scanOf(t, s, api.ScanRequest{Limit: 1, Consistency: api.ConsistencyStale})
		require.True(t, first.Stale)
		putKey(s, "b", "2")
		<-time.After(4 * time.Millisecond)
		_, second := scanOf(t, s, api.ScanRequest{After: "a", At: first.AppliedIndex})
		require.True(t, second.Stale)
		require.Equal(t, uint64(7), *second.AgeMillis)

		_, first = scanOf(t, s, api.ScanRequest{Limit: 1, Consistency: api.ConsistencyStale})
		confirmed := api.ScanRequest{After: "a", At: first.AppliedIndex}
		scanOf(t, s, api.ScanRequest{Limit: 1})
		putKey(s, "b", "2")
		_, page := scanOf(t, s, confirmed)
		require.False(t, page.Stale)
		confirmed.Consistency = api.ConsistencyStale
		_, page = scanOf(t, s, confirmed)
		require.True(t, page.Stale, "it asks for no more")
	})
}

// Pages go on where they began when the leader is lost. Another server can go on
// only if it is in the very same state.
func TestScanGoesOnWithoutALeader(t *testing.T) {
	s, r := newInstant(t, nil)
	other, otherRaft := newInstant(t, nil)
	rest := begun(t, s)
	begun(t, other)
	other.scans = nil
	code, _ := scanOf(t, other, rest)
	require.Equal(t, 200, code, "index %d is one state on every server", rest.At)
	other.scans = nil
	putKey(other, "b", "2")
	requireExpired(t, other, rest)

	r.readError = &raft.NotLeaderError{}
	putKey(s, "b", "2")
	code, page := scanOf(t, s, rest)
	require.Equal(t, 200, code)
	require.Equal(t, "1", page.Items[0].Value)
	otherRaft.readError = &raft.NotLeaderError{}
	code, _ = scanOf(t, other, rest)
	require.Equal(t, 503, code, "without a leader it cannot know whether it will come there")
	code, _ = scanOf(t, s, api.ScanRequest{})
	require.Equal(t, 503, code, "a first page needs the leader's word")
}

// On a real cluster: the rest of a scan comes from its server after another one
// leads, and is an error at one that has been started anew.
func TestSystemScanOverALeaderChange(t *testing.T) {
	s := newSystem(t)
	leader := s.leader(1, 2, 3)
	follower := leader%3 + 1
	third := follower%3 + 1
	put := func(id raft.ServerID, key, value string) {
		s.eventually("a put", func() bool {
			code, _ := s.post(id, api.PathPut, fmt.Sprintf(`{"Key":%q,"Value":%q}`, key, value))
			return code == 200
		})
	}
	for _, key := range []string{"a", "b", "c"} {
		put(leader, key, "1")
	}
	page := func(id raft.ServerID, body string) (answer api.ScanResponse) {
		_, text := s.post(id, api.PathScan, body)
		require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
		return answer
	}
	first := page(follower, `{"Prefix":"","Limit":1}`)
	require.Equal(t, "a", first.Next)
	s.stop(leader)
	s.leader(follower, third)
	put(third, "b", "2")
	put(third, "d", "2")
	rest := fmt.Sprintf(`{"Prefix":"","After":"a","At":%d}`, first.AppliedIndex)
	second := page(follower, rest)
	require.Len(t, second.Items, 2)
	require.Equal(t, "1", second.Items[0].Value)
	require.Equal(t, api.StatusScanExpired, page(third, rest).RespStatus)
	s.start(leader)
	s.stop(follower)
	s.leader(leader, third)
	s.start(follower)
	s.eventually("an answer of the new process", func() bool { return page(follower, rest).RespStatus == api.StatusScanExpired })
}
