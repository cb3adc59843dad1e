package kvservice

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// newReporting is newInstant for a cluster that only reports duplicates.
func newReporting(t *testing.T) *KVService {
	s, _ := newInstantWith(t, Config{ID: 1, Duplicates: api.DuplicatesReport})
	return s
}

// In report mode a repetition is told that it is one and how the first copy ended,
// without its result, whichever way it comes: alone, in a batch, with a key.
func TestReportedDuplicates(t *testing.T) {
	s := newReporting(t)
	const applied = `"RespStatus":"DuplicateRequest","Outcome":"applied","Error":"an earlier copy of this request was carried out; its result is not kept"`
	const refused = `"RespStatus":"DuplicateRequest","Outcome":"not_applied","Error":"an earlier copy of this request was refused and did nothing; why is not kept"`
	for _, c := range []struct{ path, body, want string }{
		{"/put", `{"Key":"x","Value":"1","ClientID":"c","RequestID":1}`, applied},
		{"/append", `{"Key":"x","Value":"2","ClientID":"c","RequestID":2}`, applied},
		{"/cas", `{"Key":"x","CompareValue":"12","Value":"3","ClientID":"c","RequestID":3}`, applied},
		{"/cas", `{"Key":"x","CompareValue":"12","Value":"3","ClientID":"c","RequestID":4}`, applied}, // not swapped
		{"/put", `{"Key":"x","Value":"4","IfVersion":0,"ClientID":"c","RequestID":5}`, refused},
		{"/delete", `{"Key":"x","ClientID":"c","RequestID":6}`, applied},
	} {
		_, first := post(s, c.path, c.body)
		require.NotContains(t, first, "DuplicateRequest")
		code, again := post(s, c.path, c.body)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "{"+c.want+"}", again)
		name := map[string]string{"/put": "Put", "/append": "Append", "/cas": "CAS", "/delete": "Delete"}[c.path]
		_, inBatch := post(s, "/batch", `{"Operations":[{"Get":{"Key":"absent"}},{"`+name+`":`+c.body+`}]}`)
		require.Contains(t, inBatch, `"RespStatus":"OK"`)
		require.Contains(t, inBatch, ",{"+c.want+"}]")
	}

	body := `{"Key":"y","Value":"1"}`
	require.Empty(t, postKeyed(s, "/append", "order-7", body).Header().Values(api.HeaderIdempotentReplayed))
	again := postKeyed(s, "/append", "order-7", body)
	require.Equal(t, http.StatusOK, again.Code)
	require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed))
	require.Equal(t, "{"+applied+"}\n", again.Body.String())
	require.Equal(t, 422, postKeyed(s, "/append", "order-7", `{"Key":"y","Value":"2"}`).Code)

	batch := `{"Operations":[{"Append":{"Key":"y","Value":"2"}},{"Put":{"Key":"y","Value":"3","IfVersion":0}}]}`
	postKeyed(s, "/batch", "order-8", batch)
	again = postKeyed(s, "/batch", "order-8", batch)
	require.Equal(t, "true", again.Header().Get(api.HeaderIdempotentReplayed))
	require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","Results":[{`+applied+`},{`+refused+"}]}\n", again.Body.String())

	_, value := post(s, "/get", `{"Key":"y"}`)
	require.Contains(t, value, `"Value":"12"`)
	require.Equal(t, api.DuplicatesReport, s.status().Duplicates)
}

// The first leader writes what it was started with; one that was started without the
// flag writes "cached". From then on the log says it.
func TestSettingsOfTheFirstLeader(t *testing.T) {
	for flag, want := range map[api.Duplicates]api.Duplicates{"": api.DuplicatesCached, api.DuplicatesCached: api.DuplicatesCached, api.DuplicatesReport: api.DuplicatesReport} {
		synctest.Test(t, func(t *testing.T) {
			s, r := serveWith(t, Config{ID: 1, Duplicates: flag})
			require.Equal(t, want, s.status().Duplicates)
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Len(t, r.log, 2)
			c, err := machine.Decode(r.log[1].Command)
			require.NoError(t, err)
			settings := machine.DefaultSettings()
			settings.ReportDuplicates = want == api.DuplicatesReport
			require.Equal(t, settings, c.Settings)
		})
	}
}

// A leader adds to the settings of an older program what they lack, and keeps what
// they have. So does every leader alike; clients need not wait for it.
func TestLeaderAddsLifetimes(t *testing.T) {
	for _, flag := range []api.Duplicates{"", api.DuplicatesCached} {
		synctest.Test(t, func(t *testing.T) {
			old := machine.Settings{Window: 9, SessionBytes: 99, ValueBytes: 999}
			s, r := unledWith(t, Config{ID: 1, Duplicates: flag})
			for _, c := range []machine.Command{
				{Kind: machine.KindSettings, Settings: old},
				{Kind: machine.KindAppend, Stamp: 5, ClientID: "laptop", RequestID: 1, Key: "x", Value: "1"},
			} {
				r.log = append(r.log, raft.LogEntry{Term: 1, Command: c.Encode()})
			}
			s.lead(r, 2)
			got, _ := s.machine.Settings()
			require.Equal(t, old.WithDefaults(), got)
			require.Equal(t, machine.DefaultSettings().RetentionMillis, got.RetentionMillis)
			require.EqualValues(t, 9, got.Window)
			require.Equal(t, api.DuplicatesCached, s.status().Duplicates)
			_, again := post2(s, r, "/append", `{"Key":"x","Value":"1","ClientID":"laptop","RequestID":1}`)
			require.Contains(t, again, `"Duplicate":true`)

			s.lead(r, 3) // nothing is left to add
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Equal(t, raft.EntryEmpty, r.log[len(r.log)-1].Kind)
		})
	}
}

// Where the log, or a snapshot, says something else than the server was started with,
// the server stops before it has answered anybody.
func TestOtherDuplicatesAreRefused(t *testing.T) {
	state := func(report bool) *machine.Machine {
		settings := machine.DefaultSettings()
		settings.ReportDuplicates = report
		m := machine.New()
		command := machine.Command{Kind: machine.KindSettings, Settings: settings}
		_, err := m.Apply(raft.CommitEntry{Index: 1, Command: command.Encode()})
		require.NoError(t, err)
		return m
	}
	snapshot := func(report bool) raft.CommitEntry {
		var b bytes.Buffer
		require.NoError(t, state(report).WriteSnapshot(&b))
		return raft.CommitEntry{Index: 1, Term: 1, Kind: raft.EntrySnapshot, Installed: &raft.InstalledSnapshot{Data: io.NopCloser(&b)}}
	}
	entry := func(report bool) raft.CommitEntry {
		settings, _ := state(report).Settings()
		command := machine.Command{Kind: machine.KindSettings, Settings: settings}
		return raft.CommitEntry{Index: 1, Term: 1, Command: command.Encode()}
	}
	for name, brings := range map[string]func(report bool) raft.CommitEntry{"entry": entry, "snapshot": snapshot} {
		for _, c := range []struct {
			flag   api.Duplicates
			report bool
			want   string
		}{
			{"", false, ""},
			{"", true, ""},
			{api.DuplicatesCached, false, ""},
			{api.DuplicatesReport, true, ""},
			{api.DuplicatesReport, false, `entry 1: this cluster answers duplicates with "cached", not "report", and that is for good; start this server with --duplicates cached or without the flag`},
			{api.DuplicatesCached, true, `entry 1: this cluster answers duplicates with "report", not "cached", and that is for good; start this server with --duplicates report or without the flag`},
		} {
			commits := make(chan raft.CommitEntry, 1)
			commits <- brings(c.report)
			close(commits)
			err := New(Config{ID: 1, Duplicates: c.flag}).Run(&scriptedRaft{}, commits)
			if c.want == "" {
				require.NoError(t, err, "%s %+v", name, c)
			} else {
				require.EqualError(t, err, c.want, name)
			}
		}
	}
}
