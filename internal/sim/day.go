package sim

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"raftkv/api"
	"raftkv/internal/lincheck"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// Days plays three days of a cluster of three whose sessions are kept for one, and
// writes to w what each client was told and what each server is left with. It takes
// a moment: nothing waits for a clock, and an election timeout is half a minute, so
// that a day has few heartbeats. The error says what was not as docs/sessions.md has
// it, or not the same on every server; it may also be w's.
func Days(w io.Writer) error {
	d := &days{s: planned(Config{Profile: Full}, 1, dayPlan()), w: w, first: map[string]*clientCall{}}
	d.s.startServers()
	d.others()
	d.printf("%d servers; a session is kept for %.0f hours after its last use\n\n", len(d.s.nodes), retention(&d.s.plan).Hours())
	d.row("true", "log time", "", "answer", "sessions", "keys", "states of servers 1, 2 and 3")
	steps := d.script()
	for (len(steps) > 0 || d.open > 0) && d.s.failure == nil && d.err == nil && d.s.now < 200*time.Hour {
		d.s.happen(d.s.queue.pop())
		if now, leads := d.logTime(); leads && d.open == 0 && len(steps) > 0 && now >= steps[0].at {
			steps[0].do(d)
			steps = steps[1:]
		}
	}
	d.s.judgeStates()
	d.s.judgeLog()
	switch {
	case d.s.failure != nil:
		return errors.New(d.s.failure.Text)
	case d.err != nil:
		return d.err
	case len(steps) > 0:
		return errors.New("the days do not end")
	}
	d.printf("\nthe ledger: %s\n", strings.TrimSpace(d.s.lookUp(ledger(0))))
	return d.err
}

// dayPlan is a good network, good disks, and clocks that go a little wrong.
func dayPlan() plan {
	const second = time.Second
	return plan{
		nodes: 3, raft: raft.Config{TrailingBytes: 1},
		electionTimeout: 30 * second, heartbeat: 5 * second, clockRate: []int{1000, 1000, 1000},
		clockSpeed: []int{999, 1000, 1001},
		linkDelay:  time.Millisecond, linkJitter: time.Millisecond, clientDelay: time.Millisecond,
		saveTime: time.Millisecond, segmentBytes: 64 << 10, downTime: second,
		settings: machine.DefaultSettings(), clients: 1, ledgers: 1, keys: 1,
		patience: 20 * second, giveUp: time.Hour, serverWait: 20 * second, forwarding: true,
		healAt: 1000 * time.Hour,
	}
}

func retention(d *plan) time.Duration {
	return time.Duration(d.settings.RetentionMillis) * time.Millisecond
}

// days is the play.
type days struct {
	s     *simulation
	w     io.Writer
	err   error
	first map[string]*clientCall // of each client, its write
	open  int                    // what has to end before the next step
}

// step is a line of the script, and when in log time it comes.
type step struct {
	at time.Duration
	do func(*days)
}

func (d *days) script() []step {
	const h, min = time.Hour, time.Minute
	writes := func(who string, m manner) func(*days) { return func(d *days) { d.write(who, m) } }
	again := func(who string, status api.Status, duplicate bool) func(*days) {
		return func(d *days) { d.again(who, status, duplicate) }
	}
	expired := api.StatusSessionExpired
	return []step{
		{0, writes("anna", registered)},
		{1 * min, writes("ruth", registered)},
		{2 * min, writes("carl", simple)},
		{3 * min, writes("order 17", keyed)},
		{6 * h, (*days).loseLeader},
		{12 * h, again("anna", api.StatusOK, true)},
		{15 * h, (*days).snapshots},
		{18 * h, (*days).allOff},
		{20 * h, (*days).clockBack},
		{23*h + 50*min, again("carl", api.StatusOK, true)},
		{23*h + 51*min, again("order 17", api.StatusOK, true)},
		{24*h + 2*min, again("ruth", expired, false)},
		{35*h + 50*min, again("anna", api.StatusOK, true)},
		{47*h + 40*min, again("carl", api.StatusOK, true)},
		{47*h + 52*min, again("order 17", api.StatusOK, false)},
		{48 * h, (*days).loseLeader},
		{60 * h, again("anna", expired, false)},
		{71*h + 42*min, again("carl", api.StatusOK, false)},
		{71*h + 50*min, again("order 17", api.StatusOK, true)},
	}
}

// others write something every ten minutes, without a session. Where nobody writes,
// no entry tells the time: what a leader has measured since the last one is lost
// with it.
func (d *days) others() {
	c := d.s.newClient(0, anonymous)
	op := lincheck.Operation{Kind: lincheck.Put, Key: key(0), Value: "x", Call: d.s.tick()}
	d.s.after(10*time.Minute, func() {
		call := &clientCall{client: c, op: op, command: commandOf(&op), patience: d.s.plan.patience, pause: time.Second}
		call.told = func(machine.Result) {}
		d.s.try(call)
		d.others()
	})
}

// logTime returns the time of the log, as who leads knows it.
func (d *days) logTime() (now time.Duration, leads bool) {
	n := d.s.latestLeader()
	if n == nil || !n.service.ready {
		return 0, false
	}
	stamp := max(n.service.machine.Now(), n.service.clock.Stamp(d.s.monotonicMillis(n)))
	return time.Duration(stamp) * time.Millisecond, true
}

// write lets a client write for the first time.
func (d *days) write(who string, m manner) {
	c := d.s.newClient(len(d.first)+1, m)
	op := lincheck.Operation{Kind: lincheck.Append, Key: ledger(0), Value: who + "; ", Call: d.s.tick()}
	call := &clientCall{client: c, op: op, command: commandOf(&op), patience: d.s.plan.patience, pause: time.Second}
	d.first[who] = call
	kinds := map[manner]string{registered: "an issued id", simple: "a chosen id", keyed: "an Idempotency-Key"}
	d.answered(call, fmt.Sprintf("%s, %s, appends", who, kinds[m]), api.StatusOK, false)
	if m == keyed {
		d.s.giveKey(call)
		d.s.try(call)
		return
	}
	c.waiting = append(c.waiting, call)
	if c.id == "" {
		d.s.registerClient(c)
	} else {
		d.s.sendWaiting(c)
	}
}

// again lets a client send its write once more.
func (d *days) again(who string, status api.Status, duplicate bool) {
	call := *d.first[who]
	call.ended = false
	d.answered(&call, who+" asks again", status, duplicate)
	d.s.try(&call)
}

// answered prints what a call is told, when all servers have heard of it, and
// compares it with what must be.
func (d *days) answered(call *clientCall, what string, status api.Status, duplicate bool) {
	d.open++
	call.told = func(r machine.Result) {
		text := string(r.Status) + ", " + string(r.Outcome)
		if r.Duplicate {
			text += ", Duplicate"
		}
		if r.Status != status || r.Duplicate != duplicate {
			d.err = fmt.Errorf("%s: %s, and not %s, Duplicate %t", what, text, status, duplicate)
		}
		d.s.after(10*time.Second, func() {
			d.line(what, text)
			d.open--
		})
	}
}

// happens prints that something has happened to the servers, when it is over.
func (d *days) happens(what string, lasts time.Duration) {
	d.open++
	d.s.after(lasts, func() {
		d.line(what, "")
		d.open--
	})
}

func (d *days) loseLeader() {
	n := d.s.latestLeader()
	d.s.stop(n, true)
	d.s.after(time.Minute, func() { d.s.start(n) })
	d.happens(fmt.Sprintf("server %d, which leads, loses power for a minute", n.id), 2*time.Minute)
}

func (d *days) snapshots() {
	for _, n := range d.s.nodes {
		d.s.askForSnapshot(n)
	}
	n := d.s.nodes[2]
	d.s.after(time.Minute, func() { d.s.stop(n, true) })
	d.s.after(2*time.Minute, func() { d.s.start(n) })
	d.happens(fmt.Sprintf("all take a snapshot, server %d begins with its own", n.id), 3*time.Minute)
}

func (d *days) allOff() {
	const lasts = 7 * time.Hour
	for _, n := range d.s.nodes {
		d.s.stop(n, true)
		d.s.after(lasts, func() { d.s.start(n) })
	}
	d.happens(fmt.Sprintf("all servers are off for %.0f hours", lasts.Hours()), lasts+2*time.Minute)
}

func (d *days) clockBack() {
	n := d.s.latestLeader()
	n.jumped -= time.Hour
	d.happens(fmt.Sprintf("the clock of server %d, which leads, goes back an hour", n.id), 2*time.Hour)
}

// line prints a row, and compares the states of the servers.
func (d *days) line(what, answer string) {
	now, _ := d.logTime()
	first := d.s.nodes[0].service.machine
	var states []string
	for _, n := range d.s.nodes {
		hash := n.service.machine.Hash()
		states = append(states, fmt.Sprintf("%x", hash[:3]))
		if n.service.machine.AppliedIndex() != first.AppliedIndex() || hash != first.Hash() {
			d.err = fmt.Errorf("%s: server %d is in another state than server 1", what, n.id)
		}
	}
	d.row(clockTime(d.s.now), clockTime(now), what, answer, fmt.Sprint(first.Sessions()), fmt.Sprint(first.IdempotencyKeys()), strings.Join(states, " "))
}

func (d *days) row(wall, log, what, answer, sessions, keys, states string) {
	d.printf("%7s  %8s  %-58s %-27s %8s %4s  %s\n", wall, log, what, answer, sessions, keys, states)
}

func clockTime(t time.Duration) string {
	return fmt.Sprintf("%dh%02dm", t/time.Hour, t%time.Hour/time.Minute)
}

func (d *days) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(d.w, format, args...); err != nil && d.err == nil {
		d.err = err
	}
}
