package machine

import (
	"os"
	"regexp"
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
