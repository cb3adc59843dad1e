package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes in pixels.
const (
	columnWidth = 230
	rowHeight   = 28 // of a row without notes
	fontSize    = 13
	charWidth   = 7.3 // of a small letter, about
)

// The colours are for those who see them; every difference is also one of shape
// or of words.
const (
	ink    = "#1b1f24"
	faint  = "#8a929b"
	blue   = "#0b5cad"
	red    = "#b3261e"
	accent = "#dbe9f8"
)

type box struct{ x0, y0, x1, y1 float64 }

func (b box) meets(o box) bool { return b.x0 < o.x1 && o.x0 < b.x1 && b.y0 < o.y1 && o.y0 < b.y1 }

// painter writes one drawing.
type painter struct {
	bytes.Buffer
	d     *drawing
	left  float64   // where the first column stands
	rowY  []float64 // where the rows stand
	taken []box     // where text stands
}

func (p *painter) last() int            { return len(p.d.figure.servers) - 1 }
func (p *painter) x(column int) float64 { return p.left + float64(column)*columnWidth }
func (p *painter) y(row int) float64    { return p.rowY[max(0, min(row, len(p.rowY)-1))] }

func width(text string) float64 { return float64(len([]rune(text)))*charWidth + 8 }

func (p *painter) f(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (d *drawing) svg() []byte {
	p := &painter{d: d}
	// Notes of the outer columns stand outside, where no arrow comes. Those of the
	// inner ones stand above their row, which is higher then.
	above := make([]float64, d.rows)
	right := 70.0
	p.left = 70
	for _, n := range d.notes {
		w := max(width(noteText(n)), logWidth(n.entries)) + 20
		switch n.column {
		case 0:
			p.left = max(p.left, w)
			words, log := p.sizes(n)
			above[n.row] = max(above[n.row], (words+log)/2)
		case p.last():
			right = max(right, w)
			words, log := p.sizes(n)
			above[n.row] = max(above[n.row], (words+log)/2)
		default:
			words, log := p.sizes(n)
			above[n.row] = max(above[n.row], words+log)
		}
	}
	down := 56.0
	for _, height := range above {
		down += rowHeight + height
		p.rowY = append(p.rowY, down)
	}
	w := p.x(p.last()) + right
	h := down + 40
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" font-family="DejaVu Sans, Verdana, sans-serif" font-size="%d" fill="%s">`, w, h, w, fontSize, ink)
	p.f(`<title>%s</title>`, html.EscapeString(d.figure.caption))
	p.f(`<!-- made by internal/docgen from testdata/scenarios/%s -->`, d.figure.story)
	p.f(`<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0,1 L10,5 L0,9 z" fill="%s"/></marker></defs>`, ink)
	p.f(`<rect width="100%%" height="100%%" fill="white"/>`)
	p.columns(h)
	for _, n := range d.notes {
		p.take(n)
	}
	for _, a := range d.arrows {
		p.arrowLine(a)
	}
	for _, n := range d.notes {
		p.note(n)
	}
	for _, a := range d.arrows {
		p.arrowText(a)
	}
	p.f(`</svg>`)
	return p.Bytes()
}

// columns draws the names and the lines of time: thick for a leader, dashed for
// a candidate, none while a server is down.
func (p *painter) columns(h float64) {
	for c, name := range p.d.figure.servers {
		what := "server " + name
		if name >= "A" {
			what = "client " + name
		}
		p.f(`<rect x="%.0f" y="14" width="104" height="28" rx="4" fill="white" stroke="%s"/>`, p.x(c)-52, ink)
		p.f(`<text x="%.0f" y="33" text-anchor="middle" font-weight="bold">%s</text>`, p.x(c), what)
	}
	for _, s := range p.d.spans {
		from, to := 42.0, p.y(s.to)
		if s.from > 0 {
			from = p.y(s.from)
		}
		if s.to >= p.d.rows {
			to = h - 12
		}
		style := map[string]string{
			"follower":     `stroke-width="1.5"`,
			"candidate":    `stroke-width="3" stroke-dasharray="7 5"`,
			"precandidate": `stroke-width="2" stroke-dasharray="2 5"`,
			"leader":       `stroke-width="6"`,
			"client":       `stroke-width="1.5" stroke-dasharray="1 3"`,
		}[s.role]
		if style != "" {
			p.f(`<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="%s" %s/>`, p.x(s.column), from, p.x(s.column), to, ink, style)
		}
	}
}

func noteText(n note) string { return strings.Join(n.lines, "; ") }

const entryHeight = 30

func (e entry) width() float64 { return max(26, float64(max(len(e.command), len(e.above)))*7+10) }

func logWidth(entries []entry) float64 {
	w := 0.0
	for _, e := range entries {
		w += e.width()
	}
	return w
}

// sizes returns how high the words of a note and its log are.
func (p *painter) sizes(n note) (words, log float64) {
	if len(n.lines) > 0 {
		words = 22
	}
	if n.entries != nil {
		log = entryHeight + 2
	}
	return words, log
}

// leftOf reports whether a note stands left of its line: in the first column, and
// where only arrows from the right arrive.
func (p *painter) leftOf(n note) bool {
	if n.column == 0 || n.column == p.last() {
		return n.column == 0
	}
	fromRight := false
	for _, a := range p.d.arrows {
		if a.to == n.column && a.ended == n.row && !a.lost && !a.inFlight {
			if a.from < a.to {
				return false
			}
			fromRight = true
		}
	}
	return fromRight
}

// noteBox is where the words of a note and its log stand.
func (p *painter) noteBox(n note) (words, log box) {
	wordsHeight, logHeight := p.sizes(n)
	up := p.y(n.row) - wordsHeight - logHeight - 1
	if n.column == 0 || n.column == p.last() {
		up = p.y(n.row) - (wordsHeight+logHeight)/2
	}
	place := func(up, w, h float64) box {
		left := p.x(n.column) + 10
		if p.leftOf(n) {
			left = p.x(n.column) - 10 - w
		}
		return box{left, up, left + w, up + h}
	}
	if wordsHeight > 0 {
		words = place(up, width(noteText(n)), wordsHeight-2)
	}
	if logHeight > 0 {
		log = place(up+wordsHeight, logWidth(n.entries), entryHeight)
	}
	return words, log
}

func (p *painter) take(n note) {
	words, log := p.noteBox(n)
	p.taken = append(p.taken, words, log)
}

func (p *painter) note(n note) {
	words, log := p.noteBox(n)
	mid := p.y(n.row)
	if n.role == "down" {
		p.f(`<path d="M%.1f,%.1f l12,12 m0,-12 l-12,12" stroke="%s" stroke-width="3"/>`, p.x(n.column)-6, mid-6, red)
	} else {
		p.f(`<circle cx="%.0f" cy="%.1f" r="4"/>`, p.x(n.column), mid)
	}
	if text := noteText(n); text != "" {
		fill := "white"
		if n.role != "" {
			fill = accent
		}
		p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4" fill="%s"/>`, words.x0, words.y0, words.x1-words.x0, words.y1-words.y0, fill)
		p.f(`<text x="%.1f" y="%.1f">%s</text>`, words.x0+4, words.y1-6, html.EscapeString(text))
	}
	left := log.x0
	for _, e := range n.entries {
		style := fmt.Sprintf(`fill="white" stroke="%s" stroke-dasharray="3 2"`, faint)
		if e.committed {
			style = fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="2"`, accent, ink)
		}
		p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" %s/>`, left+1, log.y0, e.width()-3, entryHeight, style)
		p.f(`<text x="%.1f" y="%.1f" font-size="10" text-anchor="middle">%s</text>`, left+e.width()/2, log.y0+11, e.above)
		p.f(`<text x="%.1f" y="%.1f" font-size="11" text-anchor="middle">%s</text>`, left+e.width()/2, log.y0+24, html.EscapeString(e.command))
		left += e.width()
	}
}

// ends returns where an arrow begins and ends. One that is lost, or still on its
// way, ends before it is there.
func (p *painter) ends(a *arrow) (x0, y0, x1, y1 float64) {
	x0, y0, x1, y1 = p.x(a.from), p.y(a.sent), p.x(a.to), p.y(a.ended)
	if a.sent < 0 { // before the first line that is shown
		y0 = 46
	}
	gap := math.Copysign(6, x1-x0)
	x0, x1 = x0+gap, x1-gap
	if a.lost || a.inFlight {
		x1 = x0 + 0.62*(x1-x0)
	}
	return x0, y0, x1, y1
}

func (p *painter) arrowLine(a *arrow) {
	x0, y0, x1, y1 := p.ends(a)
	style := `marker-end="url(#head)"`
	if a.inFlight {
		style += ` stroke-dasharray="4 4"`
	}
	if a.call {
		style += ` stroke-width="2"`
	}
	colour := ink
	if a.lost {
		style, colour = "", red
	}
	p.f(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" %s/>`, x0, y0, x1, y1, colour, style)
	if a.lost {
		p.f(`<path d="M%.1f,%.1f l10,10 m0,-10 l-10,10" stroke="%s" stroke-width="2.5"/>`, x1-5, y1-5, red)
	}
}

// arrowText puts the words of an arrow on it, where nothing else stands.
func (p *painter) arrowText(a *arrow) {
	x0, y0, x1, y1 := p.ends(a)
	text := a.text
	if a.lost {
		text += ", lost"
	}
	if a.inFlight {
		text += " …"
	}
	w := width(text)
	var at box
	best := math.Inf(1)
	for _, t := range []float64{0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.8, 0.2} {
		for _, shift := range []float64{0, -14, 14} {
			cx, cy := x0+t*(x1-x0), y0+t*(y1-y0)+shift
			b := box{cx - w/2, cy - 9, cx + w/2, cy + 9}
			cost := math.Abs(t-0.5) + math.Abs(shift)/20
			for _, o := range p.taken {
				if b.meets(o) {
					cost += 10
				}
			}
			for c := range p.d.figure.servers { // text on a line of time is hard to read
				if b.meets(box{p.x(c) - 4, 0, p.x(c) + 4, 1e6}) {
					cost += 4
				}
			}
			if cost < best {
				best, at = cost, b
			}
		}
	}
	p.taken = append(p.taken, at)
	colour := blue
	if a.lost {
		colour = red
	}
	p.f(`<rect x="%.1f" y="%.1f" width="%.1f" height="18" rx="3" fill="white" fill-opacity="0.9"/>`, at.x0, at.y0, w)
	p.f(`<text x="%.1f" y="%.1f" text-anchor="middle" fill="%s">%s</text>`, (at.x0+at.x1)/2, at.y1-5, colour, html.EscapeString(text))
}
