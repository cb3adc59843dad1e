package machine

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every row of the table in docs/sessions.md is played, and gives what stands
// there: what happens, the status, the outcome.
func TestTableOfTheSessionsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sessions.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "## The table\n")
	table, _, _ = strings.Cut(table, "\n**")
	rows := regexp.MustCompile("(?m)^\\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$").FindAllStringSubmatch(table, -1)[2:]

	c := issued('C')
	first := Command{Kind: KindCAS, ClientID: c, RequestID: 5, AckedThrough: 4, Key: "x", CompareValue: "a", Value: "b"}
	play := map[string]Command{
		"the session is unknown, and the id is an issued one":               appending(issued('Z'), 1, "x", "!"),
		"the session is unknown, the id is chosen, and r > 1":               appending("watch", 2, "x", "!"),
		"the session is unknown, r = 1 could open it, and there is no room": appending(NewKeyID("3"), 1, "x", "!"),
		"r ≤ Acked": appending(c, 4, "x", "!"),
		"r is recorded, with the same fingerprint":                    first,
		"the same, and [the result is not kept](#cached-or-reported)": first,
		"r is recorded, with another fingerprint":                     appending(c, 5, "x", "!"),
		"r > Acked + window":                                          appending(c, 4+short.Window+1, "x", "!").inFlight(4),
		"r is new, and the key has another version than the request demands": {
			Kind: KindPut, ClientID: c, RequestID: 6, AckedThrough: 5, Key: "x", Value: "!", IfVersion: new(uint64(7)),
		},
		"r is new, and the value would be too large": appending(c, 6, "x", strings.Repeat("!", int(short.ValueBytes))),
		"otherwise r is new":                         appending(c, 6, "x", "!"),
	}
	require.Len(t, rows, len(play))
	for _, row := range rows {
		request, known := play[row[1]]
		require.True(t, known, row[1])
		settings := short
		settings.ReportDuplicates = strings.HasPrefix(row[1], "the same, ")
		l := newLogWith(t, settings)
		l.apply(opening(c))
		l.apply(appending(NewKeyID("1"), 1, "x", ""))
		l.apply(appending(NewKeyID("2"), 1, "x", "a"))
		before := l.apply(first)
		require.True(t, before.Swapped)
		answers := []Result{l.apply(request), l.apply(request)}

		switch row[2] {
		case "nothing":
			require.Equal(t, "b", l.get("x"), row[1])
		case "that is recorded":
			require.Equal(t, "b", l.get("x"), row[1])
			require.Equal(t, repeated(answers[0]), answers[1], row[1])
		case "it is executed and recorded":
			require.Equal(t, "b!", l.get("x"), row[1])
			require.Equal(t, repeated(answers[0]), answers[1], row[1])
		default:
			t.Fatalf("unknown effect: %s", row[2])
		}
		if row[3] == "as the first time, with `Duplicate`" {
			require.Equal(t, repeated(before), answers[0])
			require.Equal(t, "as the first time", row[4])
			continue
		}
		if row[4] == "as the first time" {
			row[4] = "`" + string(before.Outcome) + "`"
		}
		require.Equal(t, row[3], "`"+string(answers[0].Status)+"`", row[1])
		require.Equal(t, row[4], "`"+string(answers[0].Outcome)+"`", row[1])
	}
}
