package run

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"raftkv/rafttest"
)

// A run of a check may cost no more than this. The checks of a right solution
// need less than a tenth of it.
const (
	maxSteps    = 200_000
	maxMessages = 10_000 // of one step
)

// Func is a check at work. It runs once for each seed, and ends with t.Failf or
// by returning.
type Func func(t *T)

// T is one run of a check. It is the rafttest.TB of the clusters it starts.
type T struct {
	seed   uint64
	trace  bool
	steps  int
	print  uint64 // a sum over all that the servers did
	failed bool
	failure
}

// failure is why a run is not ok.
type failure struct{ property, event string }

// step is what a server is doing right now, for whoever has to say that it never
// came back.
type step struct {
	server int
	what   string
	body   any
}

var (
	current  atomic.Pointer[step]
	progress atomic.Uint64
)

func (t *T) Helper()      {}
func (t *T) Name() string { return "check" }

// Seed returns the seed of this run.
func (t *T) Seed() uint64 { return t.seed }

// Logf prints a line of the trace, if somebody wants to see it.
func (t *T) Logf(format string, args ...any) {
	if t.trace {
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
}

// Fatalf takes what rafttest says when a rule is broken: a sentence, and the last
// steps.
func (t *T) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	property, rest, _ := strings.Cut(text, "\n\nThe last steps:\n")
	steps, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(strings.TrimRight(steps, "\n"), "\n")
	t.fail(named(property), strings.TrimSpace(lines[len(lines)-1]))
}

// Failf ends the run: property is what is broken, and event, in a sentence, what
// has broken it.
func (t *T) Failf(property, format string, args ...any) {
	t.fail(property, fmt.Sprintf(format, args...))
}

func (t *T) fail(property, event string) {
	if !t.failed { // the first is the one that counts
		t.failed, t.failure = true, failure{oneLine(property), oneLine(event)}
	}
	runtime.Goexit()
}

// oneLine keeps a sentence within a line, and what a student's panic says within bounds.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if runes := []rune(s); len(runes) > 400 {
		return string(runes[:400]) + " …"
	}
	return s
}

// properties names what a sentence of rafttest is about (Figure 3).
var properties = []struct{ says, name string }{
	{"has panicked: write me", "To be written"},
	{"has panicked", "No panic"},
	{"two leaders", "Election safety"},
	{"double vote", "One vote a term"},
	{"gone back from term", "Terms never fall"},
	{"log matching", "Log matching"},
	{"the log of", "Log matching"},
	{"without entry", "Leader completeness"},
	{"commit without a majority", "Commit rule"},
	{"taken back its commitIndex", "Committed stays committed"},
	{"has commitIndex", "Commit rule"},
	{"which was committed, by one of", "Committed stays committed"},
	{"there", "State machine safety"},
	{"applies entry", "State machine safety"},
	{"is lost:", "Committed stays committed"},
	{"not linearizable", "Linearizability"},
	{" holds map[", "State machine safety"},
	{`" and not "`, "Results"},
	{"within", "Liveness"},
}

func named(sentence string) string {
	for _, p := range properties {
		if strings.Contains(sentence, p.says) {
			return p.name + ": " + sentence
		}
	}
	return sentence
}

// enter and leave stand around everything that a student's code is asked.
func (t *T) enter(server int, what string, body any) {
	current.Store(&step{server, what, body})
	progress.Add(1)
	t.steps++
	if t.steps > maxSteps {
		t.Failf(fmt.Sprintf("Bounded work: more than %d events in one run", maxSteps),
			"messages bring about other messages, and it never ends")
	}
}

// leave takes the effects in the order of their receivers: a student may go
// through a map to send, and the run must not depend on that.
func (t *T) leave(server int, e rafttest.Effects) rafttest.Effects {
	current.Store(nil)
	progress.Add(1)
	if len(e.Send)+len(e.SendAfter) > maxMessages {
		t.Failf(fmt.Sprintf("Bounded work: more than %d messages in one step", maxMessages), "server %d sends %d messages at once", server, len(e.Send)+len(e.SendAfter))
	}
	byReceiver := func(a, b rafttest.Message) int { return a.To - b.To }
	slices.SortStableFunc(e.Send, byReceiver)
	slices.SortStableFunc(e.SendAfter, byReceiver)
	if save := e.Save; save != nil {
		e.Save = func() rafttest.Effects {
			t.enter(server, "its disk has written", nil)
			return t.leave(server, save())
		}
	}
	h := fnv.New64a()
	fmt.Fprint(h, t.print, server, e.Index, e.Term, e.ElectionTimer, e.HeartbeatTimer, len(e.Commit), e.Save != nil)
	for _, m := range append(slices.Clone(e.Send), e.SendAfter...) {
		io.WriteString(h, rafttest.Describe(m.Body))
		fmt.Fprint(h, m.To)
	}
	t.print = h.Sum64()
	return e
}

// watched is a node whose every step is seen.
type watched struct {
	t    *T
	id   int
	node rafttest.LogNode
}

func (w watched) do(what string, body any, f func() rafttest.Effects) rafttest.Effects {
	w.t.enter(w.id, what, body)
	return w.t.leave(w.id, f())
}

func (w watched) ElectionTimeout() rafttest.Effects {
	return w.do("the election timer fires", nil, w.node.ElectionTimeout)
}

func (w watched) HeartbeatTimeout() rafttest.Effects {
	return w.do("the heartbeat timer fires", nil, w.node.HeartbeatTimeout)
}

func (w watched) Receive(body any) rafttest.Effects {
	return w.do("it receives", body, func() rafttest.Effects { return w.node.Receive(body) })
}

func (w watched) Submit(command []byte) rafttest.Effects {
	return w.do("a client submits "+string(command), nil, func() rafttest.Effects { return w.node.Submit(command) })
}

func (w watched) Status() rafttest.Status { return w.node.Status() }
func (w watched) Log() []rafttest.Entry   { return w.node.Log() }

// watchedService is watched for a key/value server.
type watchedService struct {
	watched
	service rafttest.Service
}

func (w watchedService) Call(r rafttest.Request) (answer func() (rafttest.Answer, bool), e rafttest.Effects) {
	e = w.do("a client asks: "+r.String(), nil, func() (e rafttest.Effects) {
		answer, e = w.service.Call(r)
		return e
	})
	return answer, e
}

func (w watchedService) Apply(e rafttest.Entry) {
	w.t.enter(w.id, fmt.Sprintf("it applies entry %d", e.Index), nil)
	w.service.Apply(e)
	w.t.leave(w.id, rafttest.Effects{})
}

func (w watchedService) Data() map[string]string { return w.service.Data() }

// Nodes lets a check start servers whose every step is seen.
func Nodes[ID ~uint64, D any, N rafttest.Node](t *T, start rafttest.Start[ID, D, N]) rafttest.Start[ID, D, watched] {
	return func(id ID, peers []ID, disk *D) (watched, rafttest.Effects) {
		t.enter(int(id), "it starts", nil)
		node, e := start(id, peers, disk)
		log, ok := any(node).(rafttest.LogNode)
		if !ok {
			log = noLog{node}
		}
		return watched{t, int(id), log}, t.leave(int(id), e)
	}
}

// Services is Nodes for key/value servers.
func Services[ID ~uint64, D any, S rafttest.Service](t *T, start rafttest.Start[ID, D, S]) rafttest.Start[ID, D, watchedService] {
	return func(id ID, peers []ID, disk *D) (watchedService, rafttest.Effects) {
		t.enter(int(id), "it starts", nil)
		service, e := start(id, peers, disk)
		return watchedService{watched{t, int(id), service}, service}, t.leave(int(id), e)
	}
}

// noLog gives a node of part 1 an empty log.
type noLog struct{ rafttest.Node }

func (noLog) Submit([]byte) rafttest.Effects { return rafttest.Effects{} }
func (noLog) Log() []rafttest.Entry          { return nil }

// Do has a server do something outside a cluster. what, and body if there is one,
// say what in case it does not come back.
func (t *T) Do(server int, what string, body any, f func()) {
	t.enter(server, what, body)
	t.Logf("%s", doing(current.Load()))
	f()
	t.leave(server, rafttest.Effects{})
}

// Beside starts f in a goroutine of its own. It returns when f cannot go on before
// somebody else does something, because it waits for a lock or a channel, or has
// ended. So what f could do in the middle of something else, it has done. The
// function that Beside returns waits for the end of f.
func (t *T) Beside(f func()) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return func() {}
		default:
		}
		if besideWaits() {
			return func() { <-done }
		}
		runtime.Gosched()
	}
}

// besideWaits reports whether the goroutine that Beside has started waits for
// another one. The runtime says so where it prints stacks.
func besideWaits() bool {
	buffer := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if !strings.Contains(stack, "created by raftkv/internal/labs/run.(*T).Beside ") {
			continue
		}
		_, state, _ := strings.Cut(stack, "[")
		for _, waits := range []string{"sync.", "semacquire", "chan ", "select"} {
			if strings.HasPrefix(state, waits) {
				return true
			}
		}
	}
	return false
}

// Want ends the run unless ok. The words are those of Failf.
func (t *T) Want(ok bool, property, format string, args ...any) {
	if !ok {
		t.Failf(property, format, args...)
	}
}
