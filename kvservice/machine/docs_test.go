package machine

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
)

// The examples of docs/http.md, played in their order, get the answers that
// stand there.
func TestExamplesOfTheHTTPPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	examples := regexp.MustCompile(`\$ curl --json '(.*)' localhost:8080(/\S+)\n +(.*)\n`).FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(examples), 10)

	l := newLog(t)
	for _, example := range examples {
		body, path, want := example[1], example[2], example[3]
		c := command(t, path, body)
		if c.Kind == KindOpenSession {
			var answer api.SessionResponse
			require.NoError(t, api.DecodeResponse([]byte(want), &answer))
			c.ClientID = answer.ClientID // a server draws it; the page shows one
		}
		if c.RequestID == 0 {
			c.Nonce = l.nonce()
		}
		got, err := api.Encode(c.Response(l.apply(c)))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s %s", path, body)
	}
}

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
		"r is recorded, with the same fingerprint": first,
		"r is recorded, with another fingerprint":  appending(c, 5, "x", "!"),
		"r > Acked + window":                       appending(c, 4+short.Window+1, "x", "!").inFlight(4),
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
		l := newLogWith(t, short)
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
		require.Equal(t, row[3], "`"+string(answers[0].Status)+"`", row[1])
		require.Equal(t, row[4], "`"+string(answers[0].Outcome)+"`", row[1])
	}
}

// command makes of a request what the service makes of it.
func command(t *testing.T, path, body string) Command {
	decode := func(r api.Request) {
		require.NoError(t, api.Decode([]byte(body), r))
		require.NoError(t, r.Validate(api.Limits{}))
	}
	var c Command
	switch path {
	case api.PathSession:
		decode(&api.SessionRequest{})
		c.Kind = KindOpenSession
	case api.PathGet:
		var r api.GetRequest
		decode(&r)
		c = Command{Kind: KindGet, Key: r.Key}
	case api.PathPut:
		var r api.PutRequest
		decode(&r)
		c = Command{Kind: KindPut, Key: r.Key, Value: r.Value, ClientID: r.ClientID, RequestID: r.RequestID, AckedThrough: api.Acked(r.RequestID, r.AckedThrough)}
	case api.PathAppend:
		var r api.AppendRequest
		decode(&r)
		c = Command{Kind: KindAppend, Key: r.Key, Value: r.Value, ClientID: r.ClientID, RequestID: r.RequestID, AckedThrough: api.Acked(r.RequestID, r.AckedThrough)}
	case api.PathCAS:
		var r api.CASRequest
		decode(&r)
		c = Command{Kind: KindCAS, Key: r.Key, CompareValue: r.CompareValue, Value: r.Value, ClientID: r.ClientID, RequestID: r.RequestID, AckedThrough: api.Acked(r.RequestID, r.AckedThrough)}
	case api.PathDelete:
		var r api.DeleteRequest
		decode(&r)
		c = Command{Kind: KindDelete, Key: r.Key, ClientID: r.ClientID, RequestID: r.RequestID, AckedThrough: api.Acked(r.RequestID, r.AckedThrough)}
	default:
		t.Fatalf("no such path: %s", path)
	}
	return c
}
