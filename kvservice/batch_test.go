package kvservice

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

const twoPuts = `{"Operations":[{"Put":{"Key":"x","Value":"1","ClientID":"a","RequestID":1}},{"Append":{"Key":"x","Value":"2","ClientID":"a","RequestID":2}}]}`

// One entry answers the batch, and whoever waits for one of its operations alone.
func TestBatchAnswersWhoWaitsForAnOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		entries := len(r.log)
		batch := goPost(s, "/batch", twoPuts)
		require.Len(t, r.log, entries+1, "a batch is one entry")
		alone := goPost(s, "/put", putX1)
		r.mu.Lock()
		r.log = r.log[:len(r.log)-1] // its own copy is lost
		r.mu.Unlock()
		r.commit()
		<-batch.done
		<-alone.done
		require.Equal(t, 200, batch.code)
		require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","KeyFound":false,"PrevValue":"","Version":1}`, alone.body)
		require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","Results":[`+alone.body+`,{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"1","Version":2}]}`, batch.body)

		// A repetition brings every result again: the second write has not made the
		// first one stale.
		_, again := post2(s, r, "/batch", twoPuts)
		require.Equal(t, `{"RespStatus":"OK","Outcome":"applied","Results":[`+
			`{"RespStatus":"OK","Outcome":"applied","KeyFound":false,"PrevValue":"","Version":1,"Duplicate":true},`+
			`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"1","Version":2,"Duplicate":true}]}`, again)
	})
}

// What is not known of the batch is not known of any operation.
func TestLostBatchIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		batch := goPost(s, "/batch", twoPuts)
		s.follow(r, 2, 2)
		<-batch.done
		require.Equal(t, 504, batch.code)
		require.Contains(t, batch.body, `"RespStatus":"FailedCommit","Outcome":"unknown"`)

		r.call = func(payload []byte) ([]byte, error) {
			require.Equal(t, "/batch r7\n"+twoPuts, string(payload))
			return []byte("OK\n" + `{"RespStatus":"OK","Outcome":"applied","Results":[]}`), nil
		}
		code, _ := post(s, "/batch", twoPuts)
		require.Equal(t, 200, code, "a follower forwards it")
	})
}
