package kvclient

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// script answers the attempts of one call in order, and repeats the last.
func script(t *testing.T, attempts ...attempt) (*KVClient, *[]operation) {
	var seen []operation
	return scripted(t, func(_ context.Context, _ string, op operation) attempt {
		seen = append(seen, op)
		return attempts[min(len(seen), len(attempts))-1]
	}), &seen
}

func changed(index uint64) attempt {
	r := &api.MembersResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied}
	r.Index = index
	return answered(r)
}

// A change is repeated as it is until its end is known: the cluster makes it once.
func TestChangeMembersIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, seen := script(t, refuse(api.StatusBusy), lost(), refuse(api.StatusFailedCommit), changed(9))
		r, err := c.ChangeMembers(t.Context(), api.MembersRequest{Expected: 4, Remove: []uint64{2}})
		require.NoError(t, err)
		require.EqualValues(t, 9, r.Index)
		require.Len(t, *seen, 4)
		for _, op := range *seen {
			require.JSONEq(t, `{"Expected":4,"Remove":[2]}`, string(op.body))
		}
	})
}

func TestChangeMembersTellsTheTruth(t *testing.T) {
	for _, tc := range []struct {
		name     string
		attempts []attempt
		status   api.Status
		unknown  bool
	}{
		{"somebody was quicker", []attempt{refuse(api.StatusConfigurationChanged)}, api.StatusConfigurationChanged, false},
		{"not caught up: the caller waits, not this", []attempt{refuse(api.StatusNotCaughtUp)}, api.StatusNotCaughtUp, false},
		{"makes no sense", []attempt{refuse(api.StatusBadRequest)}, api.StatusBadRequest, false},
		{"perhaps it was we", []attempt{lost(), refuse(api.StatusConfigurationChanged)}, api.StatusConfigurationChanged, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := script(t, tc.attempts...)
				_, err := c.ChangeMembers(t.Context(), api.MembersRequest{Remove: []uint64{2}})
				var status *StatusError
				require.ErrorAs(t, err, &status)
				require.Equal(t, tc.status, status.Status)
				_, unknown := errors.AsType[*UnknownError](err)
				require.Equal(t, tc.unknown, unknown)
			})
		})
	}
}

// To a certain server as often as needed; to anybody only once, or leadership
// would wander.
func TestTransferIsRepeatedOnlyToACertainServer(t *testing.T) {
	done := answered(&api.TransferResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Leader: 3})
	synctest.Test(t, func(t *testing.T) {
		c, _ := script(t, refuse(api.StatusBusy), lost(), done)
		leader, err := c.TransferLeadership(t.Context(), 3)
		require.NoError(t, err)
		require.EqualValues(t, 3, leader)

		c, _ = script(t, refuse(api.StatusNotLeader), done)
		_, err = c.TransferLeadership(t.Context(), 0)
		require.NoError(t, err)

		c, seen := script(t, lost(), done)
		_, err = c.TransferLeadership(t.Context(), 0)
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown)
		require.Len(t, *seen, 1)
	})
}

func TestMembersIsRepeatedAndNeverUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := script(t, lost(), changed(5))
		r, err := c.Members(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, r.Index)

		c, _ = script(t, lost())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Members(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, unknown := errors.AsType[*UnknownError](err)
		require.False(t, unknown)
	})
}

func TestSaveSnapshot(t *testing.T) {
	c, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("consistency") {
		case "linearizable":
			writeAnswer(w, api.Refuse(api.StatusNotLeader, "nobody leads"))
		case "stale":
			w.Write([]byte("file"))
		}
	})
	var file bytes.Buffer
	err := c.SaveSnapshot(t.Context(), server.URL, api.ConsistencyLinearizable, &file)
	var status *StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, api.StatusNotLeader, status.Status)
	require.Zero(t, file.Len(), "a refusal is no file")
	require.NoError(t, c.SaveSnapshot(t.Context(), server.URL, api.ConsistencyStale, &file))
	require.Equal(t, "file", file.String())
}

func TestLevelsOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		age := uint64(1500)
		c, seen := script(t,
			answered(&api.GetResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied}),
			answered(&api.GetResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Age: api.Age{Stale: true, AppliedIndex: 7, AgeMillis: &age}}))
		_, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		r, err := c.Get(t.Context(), "k", WithConsistency(api.ConsistencyStale))
		require.NoError(t, err)
		require.Equal(t, GetResult{Stale: true, AppliedIndex: 7, Age: 1500 * time.Millisecond, AgeKnown: true}, r)
		require.JSONEq(t, `{"Key":"k"}`, string((*seen)[0].body))
		require.JSONEq(t, `{"Key":"k","Consistency":"stale"}`, string((*seen)[1].body))
	})
}
