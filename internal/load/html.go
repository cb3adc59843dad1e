package load

import (
	"html/template"
	"io"
	"time"
)

// WriteHTML writes the report as a page that needs nothing else: the figures,
// and the calls of each second as bars.
func (r Report) WriteHTML(w io.Writer, title string) error {
	type bar struct {
		X, Y, Height float64
		Text         string
		Failed       bool
	}
	page := struct {
		Title, Text string
		Bars        []bar
		Width       float64
		Most        int
		Rows        []Second
	}{Title: title, Text: r.String()}
	for _, s := range r.Timeline {
		page.Rows = append(page.Rows, Second{s.Applied, s.Failed, Round(s.P50), Round(s.P99), Round(s.Max)})
		page.Most = max(page.Most, s.Applied+s.Failed)
	}
	const height, step = 200.0, 12.0
	for i, s := range r.Timeline {
		scale := height / float64(max(1, page.Most))
		applied, failed := float64(s.Applied)*scale, float64(s.Failed)*scale
		x := float64(i) * step
		page.Bars = append(page.Bars,
			bar{x, height - applied, applied, time.Duration(i * int(time.Second)).String(), false},
			bar{x, height - applied - failed, failed, time.Duration(i * int(time.Second)).String(), true})
	}
	page.Width = step * float64(max(1, len(r.Timeline)))
	return reportPage.Execute(w, page)
}

var reportPage = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
svg { background: #f4f4f2; width: 100%; height: 14em; }
.applied { fill: #2b6a4d; } .failed { fill: #b3261e; }
table { border-collapse: collapse; } td, th { padding: 0 1em 0 0; text-align: right; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } svg { background: #262626; } .applied { fill: #6fbf96; } .failed { fill: #f2897f; } }
</style>
<h1>{{.Title}}</h1>
<pre>{{.Text}}</pre>
<h2>Calls in each second</h2>
<p>The highest bar is {{.Most}} calls; red is what was not applied.</p>
<svg viewBox="0 0 {{.Width}} 200" preserveAspectRatio="none" role="img" aria-label="Calls in each second">
{{range .Bars}}<rect class="{{if .Failed}}failed{{else}}applied{{end}}" x="{{.X}}" y="{{.Y}}" width="10" height="{{.Height}}"><title>{{.Text}}</title></rect>
{{end}}</svg>
<h2>The same in figures</h2>
<table><tr><th>second</th><th>applied</th><th>failed</th><th>p50</th><th>p99</th><th>longest</th></tr>
{{range $i, $s := .Rows}}<tr><td>{{$i}}</td><td>{{$s.Applied}}</td><td>{{$s.Failed}}</td><td>{{$s.P50}}</td><td>{{$s.P99}}</td><td>{{$s.Max}}</td></tr>
{{end}}</table>
</html>
`))
