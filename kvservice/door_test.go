package kvservice

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// Whatever a body's length, and whether or not it was announced, all of it is
// read, and it takes as much room as it takes memory.
func TestReadBody(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, smallBytes - 1, smallBytes, smallBytes + 1, 100_000, 1 << 20} {
		body := strings.Repeat("x", size)
		for _, announced := range []int64{int64(size), -1} {
			for name, in := range map[string]io.Reader{
				"at once":     strings.NewReader(body),
				"in pieces":   iotest.HalfReader(strings.NewReader(body)),
				"EOF with it": iotest.DataErrReader(strings.NewReader(body)),
			} {
				d := newDoor()
				v := visit{door: d}
				got, err := v.readBody(in, announced)
				require.NoError(t, err, name)
				require.Equal(t, body, string(got), name)
				require.GreaterOrEqual(t, d.bodies.used, size-smallBytes, name)
				require.LessOrEqual(t, d.bodies.used, max(0, cap(got)-smallBytes), name)
				if announced >= 0 {
					require.LessOrEqual(t, cap(got), size+1, name)
				}
				v.end()
				require.Zero(t, d.bodies.used, name)
			}
		}
	}
}

// Much is announced and little is sent: that takes no room from others.
func TestAnnouncedIsNotTaken(t *testing.T) {
	d := newDoor()
	v := visit{door: d}
	_, err := v.readBody(io.MultiReader(bytes.NewReader(make([]byte, 20_000)), iotest.ErrReader(io.ErrUnexpectedEOF)), 8<<20)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, d.bodies.used, 20_000)
}

func TestBodiesShareTheirRoom(t *testing.T) {
	d := newDoor()
	var visits []*visit
	body := make([]byte, 1<<20)
	read := func() error {
		v := &visit{door: d}
		_, err := v.readBody(bytes.NewReader(body), int64(len(body)))
		visits = append(visits, v)
		return err
	}
	for range bodyRoom / len(body) {
		require.NoError(t, read())
	}
	require.ErrorIs(t, read(), errNoRoom)
	small := visit{door: d}
	_, err := small.readBody(bytes.NewReader(body[:smallBytes-1]), smallBytes-1)
	require.NoError(t, err, "a small one is kept out by large ones")
	for _, v := range visits {
		v.end()
	}
	require.Zero(t, d.bodies.used)
	require.NoError(t, read())
}

// A large answer waits for room; when its time is over, a read is refused, and a
// write, which is done, is told that its outcome is unknown.
func TestAnswersWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		_, answer := post2(s, r, "/put", `{"Key":"x","Value":"`+strings.Repeat("x", 20_000)+`"}`)
		require.Contains(t, answer, `"RespStatus":"OK"`)
		others := visit{door: s.door}
		require.True(t, others.holdAnswer(t.Context(), answerRoom))

		began := time.Now()
		code, body := post(s, "/get", `{"Key":"x","Consistency":"stale"}`)
		require.Equal(t, 503, code)
		require.Contains(t, body, `"RespStatus":"Busy","Outcome":"not_applied"`)
		require.Equal(t, 10*time.Second, time.Since(began))
		code, body = post2(s, r, "/append", `{"Key":"x","Value":"y","ClientID":"a","RequestID":1}`)
		require.Equal(t, 504, code)
		require.Contains(t, body, `"RespStatus":"Timeout","Outcome":"unknown"`)

		p := goPost(s, "/append", `{"Key":"x","Value":"y","ClientID":"a","RequestID":1}`)
		r.commit()
		synctest.Wait()
		require.False(t, p.isDone())
		others.end()
		<-p.done
		require.Contains(t, p.body, `"Duplicate":true`, "the result was kept")
		require.Zero(t, s.door.answers.used)
	})
}

// Forwarded requests have their bytes counted at the leader, too, and answers that
// come back at the follower.
func TestForwardedRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := serve(t)
		others := visit{door: s.door}
		require.True(t, others.holdBody(bodyRoom))
		large := []byte("/put r\n" + `{"Key":"x","Value":"` + strings.Repeat("x", 100_000) + `"}`)
		reply := string(s.HandleForwarded(t.Context(), 2, large))
		require.True(t, strings.HasPrefix(reply, "Busy\n"), reply)
		require.Contains(t, reply, `"Outcome":"not_applied"`)
		others.end()

		require.True(t, others.holdAnswer(t.Context(), answerRoom))
		s.follow(r, 2, 2)
		r.call = func([]byte) ([]byte, error) {
			return joinLine(string(api.StatusOK), []byte(`{"RespStatus":"OK","Outcome":"applied","PrevValue":"`+strings.Repeat("x", 100_000)+`"}`)), nil
		}
		code, body := post(s, "/put", putX1)
		require.Equal(t, 504, code)
		require.Contains(t, body, `"RespStatus":"FailedCommit","Outcome":"unknown"`)
		others.end()
		code, _ = post(s, "/put", putX1)
		require.Equal(t, 200, code)
	})
}

// What is larger than the room may have all of it, once the others have left.
func TestRoomForTheTooLarge(t *testing.T) {
	r := room{size: 10}
	require.True(t, r.take(t.Context(), 100))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, r.take(gone, 1))
	r.give(100)
	require.True(t, r.take(gone, 1))
}
