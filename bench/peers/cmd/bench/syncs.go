package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"raftkv/bench/peers/internal/load"
)

const (
	syncClients = 16
	syncSeconds = 2 * time.Second
)

// syncs watches the system calls of all nodes while puts are made. A put counts as
// durable if, on a majority, a whole sync of the journal lies between its question
// and its answer: no earlier one can have held it, and a later one is too late. It
// shows a sync where one must be, not what was written before it; that is for the
// tests of a power cut. strace slows the nodes down, so the rates here mean nothing.
func (h *harness) syncs(ctx context.Context) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("syncs needs strace: apt-get install strace")
	}
	for _, name := range list(h.options.syncs) {
		c, err := h.up(ctx, name)
		if err != nil {
			return err
		}
		s, err := h.watchSyncs(ctx, c)
		c.down()
		if err != nil {
			return err
		}
		h.results.Syncs = append(h.results.Syncs, s)
		h.say("%s", s)
	}
	return nil
}

func (h *harness) watchSyncs(ctx context.Context, c *cluster) (syncs, error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return syncs{}, err
	}
	s, err := c.Dial(c.place, syncClients, leader, requestTimeout)
	if err != nil {
		return syncs{}, err
	}
	defer s.Close()
	var tracers []*exec.Cmd
	var files []string
	defer func() {
		for _, t := range tracers {
			t.Process.Kill()
			t.Wait()
		}
	}()
	for i, pid := range c.fleet.Pids() {
		file := filepath.Join(c.dir, fmt.Sprintf("syncs-%d", i))
		t, err := trace(pid, file)
		if err != nil {
			return syncs{}, err
		}
		tracers, files = append(tracers, t), append(files, file)
	}
	result := load.Run(ctx, s, load.Plan{
		Op: load.Put, Clients: syncClients, ValueBytes: h.options.valueBytes, Keys: h.options.keys,
		Measure: syncSeconds, Keep: true,
	})
	for _, t := range tracers {
		t.Process.Signal(syscall.SIGINT) // it lets the process go, and writes the rest
		t.Wait()
	}
	tracers = nil
	r := syncs{Contender: c.Name, Puts: len(result.Times)}
	var of [][]span
	for _, file := range files {
		spans, err := readTrace(file, c.Journal)
		if err != nil {
			return syncs{}, err
		}
		r.Syncs = append(r.Syncs, len(spans))
		of = append(of, spans)
	}
	r.Durable = countDurable(result.Times, of)
	return r, nil
}

// trace starts strace on a process, and returns when it watches.
func trace(pid int, file string) (*exec.Cmd, error) {
	// -f: all threads. -ttt, -T: when a call began, in seconds since 1970, and how
	// long it took. -y: the file's name.
	t := exec.Command("strace", "-f", "-ttt", "-T", "-y", "-e", "trace=fsync,fdatasync", "-o", file, "-p", strconv.Itoa(pid))
	t.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	messages, err := t.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := t.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(messages).ReadString('\n')
	if err != nil || !strings.Contains(line, "attached") {
		t.Process.Kill()
		t.Wait()
		return nil, fmt.Errorf("strace cannot watch process %d: %s %w", pid, strings.TrimSpace(line), err)
	}
	go io.Copy(io.Discard, messages)
	return t, nil
}

// span is the time that a sync took.
type span struct{ began, ended time.Time }

// readTrace returns the syncs in a file of strace that were of files with journal in
// their path, in the order in which they began.
func readTrace(file, journal string) ([]span, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseTrace(f, journal)
}

// parseTrace reads lines such as these. A call during which another thread's is
// seen stands in two of them.
//
//	123 1790000000.000100 fdatasync(7</d/log-1>) = 0 <0.000300>
//	123 1790000000.000100 fdatasync(7</d/log-1> <unfinished ...>
//	123 1790000000.000400 <... fdatasync resumed>) = 0 <0.000300>
func parseTrace(r io.Reader, journal string) ([]span, error) {
	unfinished := map[string]span{} // by thread; only those of the journal
	var all []span
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		thread, rest, _ := strings.Cut(lines.Text(), " ")
		stamp, call, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if !ok || !strings.Contains(call, "sync") {
			continue // a thread that came or went
		}
		at, err := parseStamp(stamp)
		if err != nil {
			return nil, fmt.Errorf("strace wrote %q: %w", lines.Text(), err)
		}
		resumed := strings.HasPrefix(call, "<... ")
		begin, known := unfinished[thread]
		switch {
		case strings.HasSuffix(call, "<unfinished ...>"):
			if strings.Contains(call, journal) {
				unfinished[thread] = span{began: at}
			}
			continue
		case resumed && !known, !resumed && !strings.Contains(call, journal):
			continue
		case !resumed:
			begin = span{began: at}
		}
		delete(unfinished, thread)
		// What failed has made nothing durable.
		if _, took, ok := strings.Cut(call, ") = 0 <"); ok {
			took, err := time.ParseDuration(strings.TrimSuffix(took, ">") + "s")
			if err != nil {
				return nil, fmt.Errorf("strace wrote %q: %w", lines.Text(), err)
			}
			begin.ended = begin.began.Add(took)
			all = append(all, begin)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.began.Compare(b.began) })
	return all, lines.Err()
}

// parseStamp reads seconds and microseconds since 1970.
func parseStamp(s string) (time.Time, error) {
	seconds, micros, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	usec, err := strconv.ParseInt(micros, 10, 64)
	return time.UnixMicro(sec*1e6 + usec), err
}

// countDurable counts the puts during which a majority of the nodes made a whole
// sync. The stamps of strace are cut to microseconds, so a put counts as sent with
// the microsecond it was sent in.
func countDurable(puts []load.Times, nodes [][]span) int {
	durable := 0
	for _, p := range puts {
		sent := p.Sent.Truncate(time.Microsecond)
		count := 0
		for _, spans := range nodes {
			first, _ := slices.BinarySearchFunc(spans, sent, func(s span, t time.Time) int { return s.began.Compare(t) })
			if slices.ContainsFunc(spans[first:min(len(spans), first+lookAhead)], func(s span) bool { return !s.ended.After(p.Answered) }) {
				count++
			}
		}
		if count > len(nodes)/2 {
			durable++
		}
	}
	return durable
}

// lookAhead is how many syncs after a put was sent may have to be looked at: they
// are in order of their beginning, and those of two files may overlap.
const lookAhead = 8
