package main

import (
	"fmt"
	"slices"
	"strings"
)

// text is the results as tables that can be put into a page as they are.
func (r results) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s, values of %d bytes. Clients: %s.\n", r.Began.Format("2006-01-02 15:04"), r.Cores, r.Go, r.ValueBytes, r.Client)
	for _, d := range r.Disk {
		fmt.Fprintf(&b, "Disk: %s.\n", d)
	}
	if len(r.Rates) > 0 {
		r.rateTables(&b)
	}
	if len(r.Failovers) > 0 {
		fmt.Fprintf(&b, "\nLongest time without a put after kill -9 of the leader, ms; %d clients.\n\n", failoverClients)
		table(&b, []string{"contender", "client", "median", "all", "errors"}, func(row func(...any)) {
			for _, f := range r.Failovers {
				row(f.Contender, f.Client, whole(median(f.GapMillis)), join(f.GapMillis), f.Errors)
			}
		})
	}
	if len(r.Syncs) > 0 {
		fmt.Fprintf(&b, "\nPuts with a whole sync on a majority between question and answer (strace).\n\n")
		table(&b, []string{"contender", "puts answered", "with syncs", "syncs by node"}, func(row func(...any)) {
			for _, s := range r.Syncs {
				row(s.Contender, s.Puts, s.Durable, join(s.Syncs))
			}
		})
	}
	if len(r.Recoveries) > 0 {
		fmt.Fprintf(&b, "\nMany keys: MiB of each node, and kill -9 of all nodes until a linearizable read has the last key.\n\n")
		table(&b, []string{"contender", "keys", "filled by", "RSS", "settled", "heap", "restarted", "disk", "to the read, ms", "all"}, func(row func(...any)) {
			for _, c := range r.Recoveries {
				row(c.Contender, c.Keys, c.Fill, join(c.RSSMiB), join(c.SettledRSSMiB), join(c.HeapMiB), join(c.RestartedRSSMiB), c.DiskMiB, whole(median(c.ReadMillis)), join(c.ReadMillis))
			}
		})
	}
	return b.String()
}

// rivals are whom the rates of raftkv are divided by.
var rivals = []string{"etcd", "hashi-bolt", "hashi-wal", "hashi-wal-tuned", "dragon", "bound", "bound-fast"}

// rateTables writes the medians over the rounds, one row for each kind of request.
func (r results) rateTables(b *strings.Builder) {
	var contenders []string
	var kinds []kind
	for _, x := range r.Rates {
		if !slices.Contains(contenders, x.Contender) {
			contenders = append(contenders, x.Contender)
		}
		if k := (kind{x.Request, x.Clients}); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	of := func(name string, k kind, figure func(rate) float64) (float64, bool) {
		var all []float64
		for _, x := range r.Rates {
			if x.Contender == name && x.Request == k.name && x.Clients == k.clients {
				all = append(all, figure(x))
			}
		}
		return median(all), len(all) > 0
	}
	write := func(title string, figure func(rate) float64, format func(float64) string) {
		fmt.Fprintf(b, "\n%s, medians of %d rounds.\n\n", title, r.Rounds)
		table(b, append([]string{"request", "clients"}, contenders...), func(row func(...any)) {
			for _, k := range kinds {
				cells := []any{k.name, k.clients}
				for _, c := range contenders {
					cells = append(cells, cell(format)(of(c, k, figure)))
				}
				row(cells...)
			}
		})
	}
	perSecond := func(x rate) float64 { return x.PerSecond }
	serverCPU := func(x rate) float64 { return x.ServerCPU }
	write("Puts or gets in a second", perSecond, whole)
	for _, own := range []string{"raftkv", "raftkv-tuned"} {
		if !slices.Contains(contenders, own) {
			continue
		}
		present := slices.DeleteFunc(slices.Clone(rivals), func(name string) bool { return !slices.Contains(contenders, name) })
		for _, ratio := range []struct {
			title  string
			figure func(rate) float64
		}{{"rate", perSecond}, {"server CPU for a put or get", serverCPU}} {
			fmt.Fprintf(b, "\n%s divided by the others: %s.\n\n", own, ratio.title)
			table(b, append([]string{"request", "clients"}, present...), func(row func(...any)) {
				for _, k := range kinds {
					mine, measured := of(own, k, ratio.figure)
					cells := []any{k.name, k.clients}
					for _, name := range present {
						theirs, ok := of(name, k, ratio.figure)
						cells = append(cells, cell(hundredths)(mine/theirs, ok && measured && theirs > 0))
					}
					row(cells...)
				}
			})
		}
	}
	write("CPU of all three servers together, seconds for a thousand", serverCPU, thousandths)
	write("CPU of the client, seconds for a thousand", func(x rate) float64 { return x.ClientCPU }, thousandths)
	write("Latency, median, ms", func(x rate) float64 { return x.P50Millis }, hundredths)
	write("Latency, 99 of 100, ms", func(x rate) float64 { return x.P99Millis }, hundredths)
	write("Cores that other programs took meanwhile", func(x rate) float64 { return x.Others }, hundredths)
}

// table writes a table of Markdown; rows calls row for each line.
func table(b *strings.Builder, head []string, rows func(row func(...any))) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	rows(func(cells ...any) {
		b.WriteString("|")
		for _, c := range cells {
			fmt.Fprintf(b, " %v |", c)
		}
		b.WriteString("\n")
	})
}

// cell writes a figure, or nothing if there is none.
func cell(format func(float64) string) func(x float64, ok bool) string {
	return func(x float64, ok bool) string {
		if !ok {
			return ""
		}
		return format(x)
	}
}

func whole(x float64) string       { return fmt.Sprintf("%.0f", x) }
func hundredths(x float64) string  { return fmt.Sprintf("%.2f", x) }
func thousandths(x float64) string { return fmt.Sprintf("%.3f", x) }

// median returns the middle one; of an even number the lower one of the two in the
// middle, 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// join writes the figures of several nodes or tries.
func join[T int | float64](all []T) string {
	var texts []string
	for _, x := range all {
		texts = append(texts, whole(float64(x)))
	}
	return strings.Join(texts, ", ")
}
