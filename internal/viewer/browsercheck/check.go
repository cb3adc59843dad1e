package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"raftkv/internal/trace"
	"raftkv/raft"
)

// row is a line of the page: what the trace says of it.
type row struct {
	line   trace.Line
	server raft.ServerID // of a step
	fault  bool          // a fault begins
}

// expectation is what a trace says, worked out here a second time.
type expectation struct {
	rows  []row
	steps map[raft.ServerID]trace.Step // the last of each server
	logs  map[raft.ServerID][]trace.Entry

	lost, doubled, effect int // rows near which one must be seen; -1: the trace has none
}

func expect(lines []trace.Line) *expectation {
	e := &expectation{steps: map[raft.ServerID]trace.Step{}, logs: map[raft.ServerID][]trace.Entry{}, lost: -1, doubled: -1, effect: -1}
	for _, line := range lines {
		r := row{line: line}
		switch l := line.(type) {
		case trace.Step:
			r.server = l.Server
			e.steps[l.Server] = l
		case trace.Fault:
			r.fault = true
		case trace.Log:
			e.logs[l.Server] = append(e.logs[l.Server][:l.From-1:l.From-1], l.Entries...)
			continue
		case trace.Send:
			if l.Lost != "" {
				e.lost = len(e.rows)
			}
			if l.Copies > 1 {
				e.doubled = len(e.rows)
			}
			continue
		case trace.Effect:
			e.effect = len(e.rows)
			continue
		case trace.Run, trace.Arrive, trace.Attempt:
			continue
		}
		e.rows = append(e.rows, r)
	}
	return e
}

// next returns the first row behind at for which is says yes; at itself if none is.
func (e *expectation) next(at int, is func(row) bool) int {
	for i := at + 1; i < len(e.rows); i++ {
		if is(e.rows[i]) {
			return i
		}
	}
	return at
}

// page is a page that is open, and how far the checks of it have come.
type page struct {
	*chromium
	expected *expectation
}

func checkPage(c *chromium, dir, screenshots, name string, lines []trace.Line) error {
	file := filepath.Join(dir, name+".html")
	if err := writePage(file, lines); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := c.open("file://" + file); err != nil {
		return err
	}
	p := &page{c, expect(lines)}
	ready, err := p.ready()
	if err != nil {
		return err
	}
	steps := 0
	for _, r := range p.expected.rows {
		if r.server != 0 {
			steps++
		}
	}
	for _, check := range []func() error{p.checkKeys, p.checkSearch, p.checkEnd, p.checkShapes, p.checkScreens, p.checkAlone} {
		if err := check(); err != nil {
			return err
		}
	}
	if screenshots != "" {
		if err := p.pictures(filepath.Join(screenshots, name)); err != nil {
			return err
		}
	}
	fmt.Printf("ok  %s: %d steps, %d lines, %d kB, ready after %d ms\n", name, steps, len(p.expected.rows), info.Size()/1000, ready)
	return nil
}

// maxReadyMillis bounds how long a page may take to show itself, on a busy machine.
const maxReadyMillis = 60_000

// ready waits until the page has read its trace.
func (p *page) ready() (millis int, err error) {
	err = p.evaluate(`new Promise(done => { const look = () => model.readyMillis ? done(model.readyMillis) : setTimeout(look, 20); look() })`, &millis)
	if err == nil && millis > maxReadyMillis {
		err = fmt.Errorf("it took %d ms to read the trace", millis)
	}
	return millis, err
}

func (p *page) cursor() (at int, err error) {
	err = p.evaluate("cursor", &at)
	return at, err
}

// checkKeys presses the keys that step, and demands that each leads to the row
// that the trace says, and that this row is on the screen.
func (p *page) checkKeys() error {
	last := len(p.expected.rows) - 1
	clamp := func(i int) int { return max(0, min(last, i)) }
	var screen int
	if err := p.evaluate("pageRows()", &screen); err != nil {
		return err
	}
	same := func(at int) int {
		r := p.expected.rows[at]
		return p.expected.next(at, func(o row) bool { return o.server == r.server })
	}
	fault := func(r row) bool { return r.fault }
	at := 0
	for _, k := range []struct {
		key string
		to  func() int
	}{
		{"End", func() int { return last }},
		{"Home", func() int { return 0 }},
		{"ArrowDown", func() int { return clamp(at + 1) }},
		{"j", func() int { return clamp(at + 1) }},
		{"PageDown", func() int { return clamp(at + screen) }},
		{"k", func() int { return clamp(at - 1) }},
		{"ArrowUp", func() int { return clamp(at - 1) }},
		{"PageUp", func() int { return clamp(at - screen) }},
		{"Home", func() int { return 0 }},
		{"n", func() int { return same(at) }},
		{"n", func() int { return same(at) }},
		{"2", func() int { return p.expected.next(at, func(r row) bool { return r.server == 2 }) }},
		{"f", func() int { return p.expected.next(at, fault) }},
		{"f", func() int { return p.expected.next(at, fault) }},
	} {
		want := k.to()
		if err := p.press(k.key); err != nil {
			return err
		}
		got, err := p.cursor()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s leads from line %d to line %d, not to %d", k.key, at+1, got+1, want+1)
		}
		at = got
		if err := p.checkCursor(at); err != nil {
			return fmt.Errorf("after %s: %w", k.key, err)
		}
	}
	return nil
}

// checkCursor demands that the row at the cursor is on the screen and told beside it.
func (p *page) checkCursor(at int) error {
	var seen struct {
		Now     string
		Visible bool
		Marks   int
	}
	err := p.evaluate(`({
		Now: $('now').textContent,
		Visible: (() => { const y = +$('svg').querySelector('.cursor').getAttribute('y'); return y >= headHeight - 1 && y + rowHeight <= layout.height })(),
		Marks: $('svg').querySelectorAll('.mark').length,
	})`, &seen)
	switch r := p.expected.rows[at]; {
	case err != nil:
		return err
	case !seen.Visible:
		return fmt.Errorf("line %d is not on the screen", at+1)
	case seen.Marks == 0 && r.server != 0:
		return fmt.Errorf("at line %d no step is drawn", at+1)
	case !strings.HasPrefix(seen.Now, fmt.Sprintf("%d of %d,", at+1, len(p.expected.rows))):
		return fmt.Errorf("line %d is told as %q", at+1, seen.Now)
	default:
		if step, ok := r.line.(trace.Step); ok && !strings.HasSuffix(seen.Now, step.What) {
			return fmt.Errorf("line %d is told as %q, and is: n%d: %s", at+1, seen.Now, step.Server, step.What)
		}
	}
	return nil
}

// checkSearch types into the search field what every run has. (Not every one has a
// leader.)
func (p *page) checkSearch() error {
	for _, key := range []string{"Home", "/", "t", "i", "m", "e", "o", "u", "t", "Enter", "Escape"} {
		if err := p.press(key); err != nil {
			return err
		}
	}
	at, err := p.cursor()
	if err != nil {
		return err
	}
	b, err := trace.Marshal(p.expected.rows[at].line)
	if err != nil {
		return err
	}
	if !strings.Contains(strings.ToLower(string(b)), "timeout") {
		return fmt.Errorf("a search for timeout finds line %d: %s", at+1, b)
	}
	return p.checkCursor(at)
}

// checkEnd compares the tables at the end with the servers as the trace leaves them.
func (p *page) checkEnd() error {
	if err := p.press("End"); err != nil {
		return err
	}
	var seen struct {
		Servers map[raft.ServerID][]string
		Logs    map[raft.ServerID]map[int]string
		Verdict string
	}
	err := p.evaluate(`({
		Verdict: $('verdict').textContent,
		Servers: Object.fromEntries([...$('servers').querySelectorAll('tbody tr')].map(r => [r.cells[0].textContent.slice(1), [...r.cells].slice(1).map(c => c.textContent)])),
		Logs: (() => {
			const [head, ...rows] = [...$('logs').rows]
			const index = [...head.cells].map(c => c.textContent)
			return Object.fromEntries(rows.map(r => [r.cells[0].textContent.slice(1), Object.fromEntries([...r.cells].slice(1).map((c, i) => [index[i + 1], c.textContent]).filter(([, t]) => t))]))
		})(),
	})`, &seen)
	if err != nil {
		return err
	}
	for id, s := range p.expected.steps {
		state := s.State
		if s.Down {
			state = "down"
		}
		cells := seen.Servers[id]
		if len(cells) != 8 || !strings.HasSuffix(cells[0], state) || cells[1] != fmt.Sprint("t", s.Term) || cells[4] != fmt.Sprint(s.Last) || cells[6] != fmt.Sprint(s.Commit) {
			return fmt.Errorf("server %d is shown as %q and is %s in term %d, log %d, commit %d", id, cells, state, s.Term, s.Last, s.Commit)
		}
	}
	for id, log := range seen.Logs {
		want := p.expected.logs[id]
		for i, shown := range log {
			if i > len(want) {
				return fmt.Errorf("server %d is shown with an entry %d", id, i)
			}
			e := want[i-1]
			text := e.Text
			if text == "" {
				text = "–"
			}
			if strings.TrimPrefix(shown, "≠") != fmt.Sprintf("%d %s", e.Term, text) {
				return fmt.Errorf("server %d's entry %d is shown as %q and is %d %s", id, i, shown, e.Term, text)
			}
		}
	}
	end := p.expected.rows[len(p.expected.rows)-1].line.(trace.Verdict)
	if !strings.Contains(seen.Verdict, end.Failure) {
		return fmt.Errorf("the verdict is shown as %q and is %q", seen.Verdict, end.Failure)
	}
	return nil
}

// checkShapes looks, where the trace has them, for what must be drawn there.
func (p *page) checkShapes() error {
	for _, s := range []struct {
		what, selector string
		row            int
	}{
		{"a message that is lost", ".message.lost .cross", p.expected.lost},
		{"the second copy of a message", ".message.again", p.expected.doubled},
		{"a call", ".bar .call", p.expected.effect},
		{"where a call took effect", ".bar .point", p.expected.effect},
		{"a fault", ".fault", p.expected.next(-1, func(r row) bool { return r.fault })},
	} {
		if s.row < 0 {
			continue
		}
		var drawn int
		if err := p.evaluate(fmt.Sprintf("go(%d), $('svg').querySelectorAll('%s').length", s.row, s.selector), &drawn); err != nil {
			return err
		}
		if drawn == 0 {
			return fmt.Errorf("at line %d %s is not drawn", s.row+1, s.what)
		}
	}
	return nil
}

// checkScreens pages through the run: nothing may be drawn but what is visible,
// however long the run is, and each screen must be quick.
func (p *page) checkScreens() error {
	const maxShapes, maxMillis = 6000, 1000 // a busy machine is no mistake of the page
	var seen struct {
		Most   int
		Millis float64
	}
	err := p.evaluate(`(() => {
		let most = 0, screens = 0
		const began = performance.now()
		for (let row = 0; row < model.rows.length; row += Math.max(pageRows(), Math.ceil(model.rows.length / 300))) {
			go(row)
			screens++
			most = Math.max(most, $('svg').querySelectorAll('*').length)
		}
		return { Most: most, Millis: (performance.now() - began) / screens }
	})()`, &seen)
	switch {
	case err != nil:
		return err
	case seen.Most > maxShapes:
		return fmt.Errorf("a screen is drawn with %d shapes", seen.Most)
	case seen.Millis > maxMillis:
		return fmt.Errorf("a screen takes %.0f ms", seen.Millis)
	}
	fmt.Printf("    %.1f ms and at most %d shapes a screen\n", seen.Millis, seen.Most)
	return nil
}

// checkAlone demands that the page has asked for nothing and has not failed.
func (p *page) checkAlone() error {
	var loaded []string
	if err := p.evaluate(`performance.getEntriesByType('resource').map(e => e.name)`, &loaded); err != nil {
		return err
	}
	if len(loaded) > 0 {
		return fmt.Errorf("it has loaded %v", loaded)
	}
	if len(p.complaints) > 0 {
		return fmt.Errorf("it has failed: %s", p.complaints[0])
	}
	return nil
}

// pictures writes how the page looks: at the beginning, where a call takes effect,
// at its end, in the dark, and in a narrow window.
func (p *page) pictures(name string) error {
	if err := p.press("Home"); err != nil {
		return err
	}
	if err := p.screenshot(name + "-begin.png"); err != nil {
		return err
	}
	if err := p.evaluate(fmt.Sprintf("go(%d)", max(p.expected.effect, p.expected.lost, 0)), nil); err != nil {
		return err
	}
	if err := p.screenshot(name + "-middle.png"); err != nil {
		return err
	}
	if err := p.press("End"); err != nil {
		return err
	}
	if err := p.screenshot(name + "-end.png"); err != nil {
		return err
	}
	if err := p.dark(true); err != nil {
		return err
	}
	if err := p.screenshot(name + "-dark.png"); err != nil {
		return err
	}
	if err := p.window(420, 900); err != nil {
		return err
	}
	if err := p.screenshot(name + "-narrow.png"); err != nil {
		return err
	}
	return p.dark(false)
}
