package run

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"raftkv/rafttest"
)

// A step of a student's code that has not returned after so many looks of the
// watchdog, or has let the memory grow beyond so much, will not return. Looks are
// counted, not seconds, so that a machine that was asleep accuses nobody.
const (
	look          = 50 * time.Millisecond
	looks         = 100
	maxMemory     = 512 << 20
	maxStackBytes = 32 << 20
)

// outcome is what a child reports of one check, as a line of JSON.
type outcome struct {
	ID       string
	Begun    bool // nothing but that it has begun: if nothing follows, the child died of it
	OK       bool
	Property string
	Event    string
	Seed     uint64
}

// child runs one check after the other, as next hands them out, and reports each.
func child(funcs map[string]Func, seeds []uint64, report func(outcome), next func() (Check, bool)) {
	debug.SetMaxStack(maxStackBytes)
	var now outcome
	go watch(func(where string) {
		report(outcome{ID: now.ID, Property: notReturned, Event: where, Seed: now.Seed})
		os.Exit(0)
	})
	for c, ok := next(); ok; c, ok = next() {
		now = outcome{ID: c.ID, OK: true}
		for _, seed := range seedsOf(c, seeds) {
			now.Seed = seed
			report(outcome{ID: c.ID, Begun: true, Seed: seed})
			f, broken := once(funcs[c.ID], seed)
			if broken {
				now = outcome{ID: c.ID, Property: f.property, Event: f.event, Seed: seed}
				break
			}
		}
		report(now)
	}
}

const notReturned = "Termination: a step must return, and this one does not: it loops, or uses up the memory"

// seedsOf returns the seeds that a check runs with: its own, or those given
// instead, if it uses more than one.
func seedsOf(c Check, given []uint64) []uint64 {
	if len(given) > 0 && c.Seeds > 1 {
		return given
	}
	var own []uint64
	for seed := uint64(1); seed <= uint64(c.Seeds); seed++ {
		own = append(own, seed)
	}
	return own
}

// once runs a check with one seed. It does so twice: if the second run is not the
// first one again, no verdict on it would mean anything.
func once(f Func, seed uint64) (failure, bool) {
	first, second := goThrough(f, seed, false), goThrough(f, seed, false)
	if first.print != second.print || first.failure != second.failure {
		return failure{
			"Determinism: the same events must give the same run",
			"two runs with this seed are not the same; does your code range over a map where the order matters?",
		}, true
	}
	return first.failure, first.failed
}

// goThrough runs a check with one seed, once.
func goThrough(f Func, seed uint64, trace bool) *T {
	t := &T{seed: seed, trace: trace}
	done := make(chan struct{})
	go func() { // a goroutine of its own, because a run may end with Goexit
		defer close(done)
		defer func() {
			if broken := recover(); broken != nil && !t.failed {
				who := "a server"
				if s := current.Load(); s != nil {
					who = fmt.Sprint("server ", s.server)
				}
				sentence := fmt.Sprintf("%s has panicked: %v", who, broken)
				t.failed, t.failure = true, failure{oneLine(named(sentence)), oneLine(doing(current.Load()))}
			}
		}()
		f(t)
	}()
	<-done
	return t
}

// doing says what a server was about.
func doing(s *step) string {
	if s == nil {
		return ""
	}
	words := fmt.Sprintf("server %d: %s", s.server, s.what)
	if s.body != nil {
		words += " " + rafttest.Describe(s.body)
	}
	return words
}

// watch looks from time to time whether the student's code has come back since
// the last look, and calls lost with what it was doing if it will not.
func watch(lost func(where string)) {
	last, same := progress.Load(), 0
	memory := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for range time.Tick(look) {
		metrics.Read(memory)
		now := progress.Load()
		if now != last {
			last, same = now, 0
		} else {
			same++
		}
		s := current.Load()
		if s != nil && (same >= looks || memory[0].Value.Uint64() > maxMemory) {
			buffer := make([]byte, 1<<20)
			lost(doing(s) + "; " + handler(string(buffer[:runtime.Stack(buffer, true)])) + " does not return")
			return
		}
	}
}

// handler finds in a print of stacks the student's function that Step has called:
// the outermost one with a name that handlers have, or else the outermost.
func handler(stacks string) string {
	outermost, handling := "Step", ""
	for line := range strings.SplitSeq(stacks, "\n") {
		name, isCall := strings.CutPrefix(line, "raftkv/part")
		if !isCall {
			if handling != "" && line == "" {
				break // the end of that goroutine's stack
			}
			continue
		}
		name, _, _ = strings.Cut(name, "(0x")
		name = strings.TrimSuffix(name, "(...)")
		name = name[strings.LastIndex(name, ".")+1:]
		if name, _, _ = strings.Cut(name, "("); name == "" || strings.HasPrefix(name, "func") {
			continue
		}
		outermost = name
		if name != "handleMessage" && (strings.HasPrefix(name, "handle") || strings.HasPrefix(name, "start") || name == "apply") {
			handling = name
		}
	}
	if handling != "" {
		return handling
	}
	return outermost
}

// show runs one check with one seed and prints everything that happens.
func show(c Check, f Func, seed uint64) {
	fmt.Printf("%s  %s, seed %d\n\n", c.ID, c.Title, seed)
	go watch(func(where string) {
		fmt.Printf("\n%s\n  %s\n", notReturned, where)
		os.Exit(0)
	})
	t := goThrough(f, seed, true)
	if !t.failed {
		fmt.Println("\nThis run is ok.")
		return
	}
	fmt.Printf("\n%s\n  %s\n", t.property, t.event)
}

// write reports an outcome among whatever the student's code prints: a line that
// begins with a word nobody else knows.
func write(w io.Writer, nonce string) func(outcome) {
	return func(o outcome) {
		data, _ := json.Marshal(o) // strings, numbers and bools
		fmt.Fprintf(w, "\n%s%s\n", nonce, data)
	}
}
