package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// story is a log of a few commands: what the machine makes of it, and what the book
// says of that.
type story struct {
	t *testing.T
	s *simulation
	m *machine.Machine
}

const (
	issuedA = api.ClientID("s-AAAAAAAAAAAAAAAAAAAAAAAAAA")
	issuedB = api.ClientID("s-BBBBBBBBBBBBBBBBBBBBBBBBBB")
)

// newStory begins with room for one session and one key, for 100 ms.
func newStory(t *testing.T) *story {
	st := &story{t, planned(Config{Profile: Full}, 1, dayPlan()), machine.New()}
	settings := machine.DefaultSettings()
	settings.RetentionMillis, settings.MaxSessions, settings.MaxKeys = 100, 1, 1
	st.tell(0, machine.Command{Kind: machine.KindSettings, Settings: settings}, nil)
	return st
}

// tell lets the machine apply a command, and the book look at what came of it after
// spoil has changed that.
func (st *story) tell(at machine.LogTime, c machine.Command, spoil func(*machine.Applied)) (entry applied) {
	c.Stamp = at
	a, err := st.m.Apply(raft.CommitEntry{Index: st.m.AppliedIndex() + 1, Command: c.Encode()})
	require.NoError(st.t, err)
	if spoil != nil {
		spoil(&a)
	}
	entry = applied{result: a}
	st.s.judgeSessions(st.m.AppliedIndex(), &c, &entry)
	return entry
}

func appends(id api.ClientID, number uint64) machine.Command {
	return machine.Command{Kind: machine.KindAppend, ClientID: id, RequestID: number, Key: "x", Value: "a"}
}

func opens(id api.ClientID) machine.Command {
	return machine.Command{Kind: machine.KindOpenSession, ClientID: id}
}

func closes(id api.ClientID) machine.Command {
	return machine.Command{Kind: machine.KindCloseSession, ClientID: id}
}

// The book believes the machine. What is carried out for the second time is anew
// where the promise was over, alone or in a batch, and only there.
func TestBookKnowsWhatIsAnew(t *testing.T) {
	key := machine.NewKeyID("order")
	for name, id := range map[string]api.ClientID{"chosen": "laptop", "key": key} {
		t.Run(name, func(t *testing.T) {
			st := newStory(t)
			require.Nil(t, st.tell(10, appends(id, 1), nil).anew)
			require.Nil(t, st.tell(109, appends(id, 1), nil).anew, "a repetition")
			batch := machine.Command{Kind: machine.KindBatch, Operations: []machine.Command{{Kind: machine.KindGet, Key: "x"}, appends(id, 1)}}
			require.Equal(t, []bool{false, true}, st.tell(209, batch, nil).anew)
			require.Nil(t, st.tell(209, appends(id, 1), nil).anew)
			require.Nil(t, st.s.failure)
			require.EqualValues(t, 1, st.s.coverage[ExecutedAnew])
		})
	}
	st := newStory(t)
	keyed := machine.Command{Kind: machine.KindBatch, ClientID: key, RequestID: 1, Operations: []machine.Command{{Kind: machine.KindDelete, Key: "x"}}}
	require.Nil(t, st.tell(10, keyed, nil).anew)
	require.Nil(t, st.tell(20, keyed, nil).anew)
	require.Equal(t, []bool{true}, st.tell(120, keyed, nil).anew, "a batch with a key is one request")
	keyed.Operations = append(keyed.Operations, keyed.Operations[0])
	require.Nil(t, st.tell(220, keyed, nil).anew)
	require.Nil(t, st.s.failure, "more operations than there may be keys")

	st = newStory(t)
	for _, c := range []machine.Command{
		opens(issuedA), appends(issuedA, 1), opens(issuedB), appends(issuedA, 1), // evicted
		appends(issuedB, 1), closes(issuedB), appends(issuedB, 1),
		appends("laptop", 1), opens(issuedA), appends("phone", 1), // no room
		closes("laptop"), appends("phone", 2), appends("phone", 1), appends("phone", 1),
	} {
		require.Nil(t, st.tell(1, c, nil).anew)
	}
	require.Nil(t, st.s.failure)
	require.EqualValues(t, 1, st.s.coverage[SessionEvicted])
	require.EqualValues(t, 2, st.s.coverage[NoRoomForSession])
}

// Each of these is something that no state machine may say, though all servers may
// agree on it.
func TestBookNotices(t *testing.T) {
	status := func(s api.Status) func(*machine.Applied) {
		return func(a *machine.Applied) { a.Result.Status, a.Event = s, machine.EventRefused }
	}
	executed := func(a *machine.Applied) { a.Result.Status, a.Event = api.StatusOK, machine.EventCommitted }
	for name, tc := range map[string]struct {
		before []machine.Command
		at     machine.LogTime
		c      machine.Command
		spoil  func(*machine.Applied)
		text   string
	}{
		"who has a session has none":       {[]machine.Command{opens(issuedA)}, 1, appends(issuedA, 1), status(api.StatusSessionExpired), "session: index 3: request 1 of \"s-AAAAAAAAAAAAAAAAAAAAAAAAAA\" is answered SessionExpired, and it has a session"},
		"a repetition is executed":         {[]machine.Command{opens(issuedA), appends(issuedA, 1)}, 1, appends(issuedA, 1), executed, "exactly once: index 4: carried out twice"},
		"an expired id is executed":        {[]machine.Command{opens(issuedA), appends(issuedA, 1)}, 200, appends(issuedA, 1), executed, "has no session"},
		"an issued id comes again":         {[]machine.Command{opens(issuedA), closes(issuedA)}, 1, opens(issuedA), nil, "for the second time"},
		"a chosen id begins in the middle": {nil, 1, appends("laptop", 2), executed, "has no session"},
		"it expires too late":              {[]machine.Command{opens(issuedA)}, 200, closes(issuedA), func(a *machine.Applied) { a.Expired = 0 }, "1 sessions have expired and 0"},
		"one too many is evicted":          {nil, 1, opens(issuedA), func(a *machine.Applied) { a.Evicted = 1 }, "0 were evicted, but the state machines say 0 and 1"},
		"there is no room for a chosen id": {[]machine.Command{appends("laptop", 1)}, 1, appends("phone", 1), executed, "no room"},
		"there is room and it is refused":  {nil, 1, opens(issuedA), status(api.StatusBusy), "there is room"},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStory(t)
			for _, c := range tc.before {
				st.tell(0, c, nil)
			}
			require.Nil(t, st.s.failure)
			st.tell(tc.at, tc.c, tc.spoil)
			require.NotNil(t, st.s.failure)
			require.Contains(t, st.s.failure.Kind+": "+st.s.failure.Text, tc.text)
		})
	}
}
