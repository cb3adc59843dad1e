package load

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is how a call has ended.
type Outcome string

// The outcomes. A read that was not answered is NotApplied.
const (
	Applied    Outcome = "applied"
	NotApplied Outcome = "not_applied"
	Unknown    Outcome = "unknown"
)

// Outcomes are all of them, in the order in which they are shown.
var Outcomes = []Outcome{Applied, NotApplied, Unknown}

// Report is what was measured.
type Report struct {
	Elapsed time.Duration
	Calls   map[Outcome]int
	Errors  map[Outcome]string // the first error of each outcome

	// Latencies are of the calls that were applied, shortest first.
	Latencies []time.Duration

	// Timeline has one point for each second.
	Timeline []Second

	LongestGap time.Duration // between the ends of two applied calls

	samples []sample
}

// Second is what one second has seen: the calls that ended in it.
type Second struct {
	Applied, Failed int
	P50, P99, Max   time.Duration // of the applied ones
}

// sample is one call.
type sample struct {
	ended, took time.Duration // ended counts from the start
	outcome     Outcome
}

func newReport() Report {
	return Report{Calls: map[Outcome]int{}, Errors: map[Outcome]string{}}
}

// finish works out the figures from the samples.
func (r Report) finish() Report {
	slices.SortFunc(r.samples, func(a, b sample) int { return int(a.ended - b.ended) })
	var last time.Duration
	for len(r.samples) > 0 {
		end := time.Duration(len(r.Timeline)+1) * time.Second
		var s Second
		var latencies []time.Duration
		for len(r.samples) > 0 && r.samples[0].ended < end {
			c := r.samples[0]
			r.samples = r.samples[1:]
			r.Calls[c.outcome]++
			if c.outcome != Applied {
				s.Failed++
				continue
			}
			s.Applied++
			latencies = append(latencies, c.took)
			r.LongestGap = max(r.LongestGap, c.ended-last)
			last = c.ended
		}
		slices.Sort(latencies)
		s.P50, s.P99, s.Max = Percentile(latencies, 50), Percentile(latencies, 99), Percentile(latencies, 100)
		r.Latencies = append(r.Latencies, latencies...)
		r.Timeline = append(r.Timeline, s)
	}
	slices.Sort(r.Latencies)
	return r
}

// Percentile returns the smallest of sorted that more than p percent do not
// exceed, for 100 the greatest; 0 if there is none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	n := int(p / 100 * float64(len(sorted)))
	return sorted[min(n, len(sorted)-1)]
}

// Throughput returns the applied calls per second.
func (r Report) Throughput() float64 {
	if r.Elapsed == 0 {
		return 0
	}
	return float64(r.Calls[Applied]) / r.Elapsed.Seconds()
}

// String is the report as text for people, a line for each fact.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d applied, %d not applied, %d unknown in %v: %.0f calls/s\n",
		r.Calls[Applied], r.Calls[NotApplied], r.Calls[Unknown], r.Elapsed.Round(time.Millisecond), r.Throughput())
	if len(r.Latencies) > 0 {
		fmt.Fprintf(&b, "latency: p50 %v, p99 %v, p99.9 %v, longest %v; longest gap %v\n",
			Round(Percentile(r.Latencies, 50)), Round(Percentile(r.Latencies, 99)), Round(Percentile(r.Latencies, 99.9)),
			Round(r.Latencies[len(r.Latencies)-1]), Round(r.LongestGap))
	}
	for _, o := range Outcomes {
		if e := r.Errors[o]; e != "" {
			fmt.Fprintf(&b, "first %s: %s\n", o, e)
		}
	}
	return b.String()
}

// Round returns d with the digits that mean something.
func Round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
