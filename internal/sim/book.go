package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// book says who has a session. It reads the same log as the state machines, and
// does slowly what docs/sessions.md promises of their lifetimes: it forgets
// nothing, and keeps of each client all the sessions that it has had. With it
// the simulator knows whether a client that is told "no session" had one, and
// whether a write that is carried out a second time was still protected.
type book struct {
	settings machine.Settings
	now      machine.LogTime
	open     []*life // in the order in which they were used last, and then of their ids
	lives    map[api.ClientID]*life
	met      map[machine.Identity]int // in which life of its client it came first
}

// life is one session of a client: the latest that it has had.
type life struct {
	id       api.ClientID
	nth      int // of its client, from 1
	open     bool
	lastUse  machine.LogTime
	executed map[uint64]raft.Index
	keys     int // how many it counts for, of the keys that there may be; 0 if it is none
}

func newBook() book {
	return book{lives: map[api.ClientID]*life{}, met: map[machine.Identity]int{}}
}

var errTwice = errors.New("carried out twice")

// judgeSessions looks at what the first server has made of an entry.
func (s *simulation) judgeSessions(index raft.Index, c *machine.Command, entry *applied) {
	b := &s.book
	if c.Stamp < b.now {
		s.count(StampBehind)
	}
	b.now = max(b.now, c.Stamp)
	expired, evicted := b.expire(s), 0
	all := operations(&entry.result)
	note := func(a *machine.Applied, gone int, anew bool, err error) bool {
		kind := "session"
		if errors.Is(err, errTwice) {
			kind = "exactly once"
		}
		if err != nil {
			s.fail(kind, "index %d: %v", index, err)
		}
		if a.Result.Status == api.StatusBusy {
			s.count(NoRoomForSession)
		}
		if anew {
			s.count(ExecutedAnew)
		}
		evicted += gone
		return anew
	}
	switch {
	case c.Kind != machine.KindBatch:
		gone, anew, err := b.operation(index, c, &all[0])
		if note(&all[0], gone, anew, err) {
			entry.anew = []bool{true}
		}
	case c.RequestID > 0: // one request, with a key
		gone, anew, err := b.write(index, c, &entry.result)
		if note(&entry.result, gone, anew, err) {
			entry.anew = slices.Repeat([]bool{true}, len(all))
		}
	default:
		s.count(BatchSent)
		for i := range all {
			gone, anew, err := b.operation(index, &c.Operations[i], &all[i])
			if note(&all[i], gone, anew, err) {
				if entry.anew == nil {
					entry.anew = make([]bool, len(all))
				}
				entry.anew[i] = true
			}
		}
	}
	s.coverage[SessionEvicted] += int64(evicted)
	if got := &entry.result; got.Expired != expired || got.Evicted != evicted {
		s.fail("session", "index %d: %d sessions have expired and %d were evicted, but the state machines say %d and %d", index, expired, evicted, got.Expired, got.Evicted)
	}
}

// expire ends the sessions that nobody has used for the retention. There are fewer
// than a state machine forgets with one entry.
func (b *book) expire(s *simulation) (expired int) {
	for b.settings.RetentionMillis > 0 && len(b.open) > 0 && uint64(b.now-b.open[0].lastUse) >= b.settings.RetentionMillis {
		if machine.IsKey(b.open[0].id) {
			s.count(KeyExpired)
		} else {
			s.count(SessionExpired)
		}
		b.end(b.open[0])
		expired++
	}
	return expired
}

// operation takes in what became of one operation. evicted counts the sessions that
// made room for it; anew says that it was carried out as another write than the one
// that had its identity before.
func (b *book) operation(index raft.Index, c *machine.Command, a *machine.Applied) (evicted int, anew bool, err error) {
	ok := a.Result.Status == api.StatusOK
	switch {
	case c.Kind == machine.KindSettings && ok:
		b.settings = c.Settings
	case c.Kind == machine.KindOpenSession:
		room, evicted := b.makeRoom(c)
		if room != ok {
			return evicted, false, fmt.Errorf("%s wants a session, there is room: %t, and it is told %s", c.ClientID, room, a.Result.Status)
		}
		if ok {
			_, err = b.begin(c)
		}
		return evicted, false, err
	case c.Kind == machine.KindCloseSession:
		if l := b.lives[c.ClientID]; l != nil && l.open {
			b.end(l)
		}
	case c.RequestID > 0:
		return b.write(index, c, a)
	}
	return 0, false, nil
}

func (b *book) write(index raft.Index, c *machine.Command, a *machine.Applied) (evicted int, anew bool, err error) {
	if n := uint64(len(c.Operations)); b.settings.RetentionMillis > 0 && n > b.settings.MaxKeys {
		if a.Result.Status != api.StatusTooLarge {
			err = fmt.Errorf("a batch of %d under one key is answered %s", n, a.Result.Status)
		}
		return 0, false, err
	}
	l := b.lives[c.ClientID]
	if l == nil || !l.open {
		expired, busy := a.Result.Status == api.StatusSessionExpired, a.Result.Status == api.StatusBusy
		if machine.IsIssued(c.ClientID) || c.RequestID != 1 {
			if !expired {
				err = fmt.Errorf("request %d of %q, which has no session, is answered %s", c.RequestID, c.ClientID, a.Result.Status)
			}
			return 0, false, err
		}
		var room bool
		if room, evicted = b.makeRoom(c); !room {
			if !busy {
				err = fmt.Errorf("there is no room for %q, and it is answered %s", c.ClientID, a.Result.Status)
			}
			return evicted, false, err
		}
		if l, err = b.begin(c); err != nil {
			return evicted, false, err
		}
	}
	b.use(l)
	switch a.Result.Status {
	case api.StatusSessionExpired, api.StatusBusy:
		return evicted, false, fmt.Errorf("request %d of %q is answered %s, and it has a session", c.RequestID, c.ClientID, a.Result.Status)
	}
	if b.met[a.Identity] == 0 {
		b.met[a.Identity] = l.nth
	}
	if a.Event != machine.EventCommitted {
		return evicted, false, nil
	}
	if before, twice := l.executed[c.RequestID]; twice {
		return evicted, false, fmt.Errorf("%w: request %d of %q, before at index %d in the same session", errTwice, c.RequestID, c.ClientID, before)
	}
	l.executed[c.RequestID] = index
	return evicted, b.met[a.Identity] < l.nth, nil
}

// begin opens a session for the client of c. An issued id has only one, ever.
func (b *book) begin(c *machine.Command) (*life, error) {
	id, nth := c.ClientID, 1
	if before := b.lives[id]; before != nil {
		if machine.IsIssued(id) {
			return nil, fmt.Errorf("%s has a session for the second time", id)
		}
		nth = before.nth + 1
	}
	l := &life{id: id, nth: nth, open: true, lastUse: b.now, executed: map[uint64]raft.Index{}}
	if machine.IsKey(id) {
		l.keys = max(1, len(c.Operations))
	}
	b.lives[id] = l
	b.open = append(b.open, l)
	b.use(l)
	return l, nil
}

// makeRoom sees to it that there is room for a session of the client of c, if that
// may be.
func (b *book) makeRoom(c *machine.Command) (room bool, evicted int) {
	if b.settings.RetentionMillis == 0 {
		return true, 0
	}
	keys, sessions := 0, 0
	for _, l := range b.open {
		if keys += l.keys; l.keys == 0 {
			sessions++
		}
	}
	if machine.IsKey(c.ClientID) {
		return uint64(keys+max(1, len(c.Operations))) <= b.settings.MaxKeys, 0
	}
	if uint64(sessions) < b.settings.MaxSessions {
		return true, 0
	}
	for _, l := range b.open {
		if machine.IsIssued(l.id) {
			b.end(l)
			return true, 1
		}
	}
	return false, 0
}

func (b *book) use(l *life) {
	l.lastUse = b.now
	slices.SortFunc(b.open, func(x, y *life) int {
		return cmp.Or(cmp.Compare(x.lastUse, y.lastUse), cmp.Compare(x.id, y.id))
	})
}

func (b *book) end(l *life) {
	l.open = false
	b.open = slices.DeleteFunc(b.open, func(other *life) bool { return other == l })
}
