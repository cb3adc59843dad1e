package api

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func httpPage(t *testing.T) string {
	page, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	return string(page)
}

// The table of statuses in docs/http.md is the one in status.go.
func TestStatusesOfTheHTTPPage(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d{3}) \\| (?:`(\\w+)`|[^|]+) \\| (\\d) \\|").FindAllStringSubmatch(httpPage(t), -1)
	require.Len(t, rows, len(meanings))
	for _, row := range rows {
		s := Status(row[1])
		require.True(t, s.Known(), row[1])
		m := meanings[s]
		require.Equal(t, row[2], fmt.Sprint(m.http), row[1])
		require.Equal(t, row[4], fmt.Sprint(m.exit), row[1])
		if row[3] != "" {
			require.Equal(t, row[3], string(m.outcome), row[1])
		}
	}
}

// Every body in the table of bad input is refused as it says.
func TestBadInputOfTheHTTPPage(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([{\\[].*)` \\| `(\\w+)` \\|").FindAllStringSubmatch(httpPage(t), -1)
	require.Len(t, rows, 23)
	for _, row := range rows {
		require.Equal(t, Status(row[2]), refusal(t, row[1], new(PutRequest)).Status, row[1])
	}
}

// The examples that kvservice's test cannot play, because they need servers, have
// the fields that there are, in their order.
func TestAdminExamplesOfTheHTTPPage(t *testing.T) {
	curl := regexp.MustCompile(`^    \$ curl (?:--json '(.*)' )?localhost:\d+(/status|/admin/\w+)(?:\?\S*)?$`)
	lines := strings.Split(httpPage(t), "\n")
	seen := map[string]int{}
	for i, line := range lines {
		command := curl.FindStringSubmatch(line)
		if command == nil {
			continue
		}
		var answer strings.Builder
		for _, line := range lines[i+1:] {
			if !strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "    $") {
				break
			}
			answer.WriteString(strings.TrimSpace(line))
		}
		var request Request
		var response Response
		switch path := command[2]; path {
		case PathStatus:
			response = &StatusResponse{}
		case PathAdminMembers:
			request, response = &MembersRequest{}, &MembersResponse{}
		case PathAdminTransfer:
			request, response = &TransferRequest{}, &TransferResponse{}
		case PathAdminHash:
			request, response = &HashRequest{}, &HashResponse{}
		case PathAdminSnapshot:
			request, response = &SnapshotRequest{}, &SnapshotResponse{}
		default:
			t.Fatalf("no such path: %s", path)
		}
		seen[command[2]]++
		if body := command[1]; body != "" {
			require.NoError(t, Decode([]byte(body), request), body)
			require.NoError(t, request.Validate(Limits{}), body)
		}
		require.NoError(t, DecodeResponse([]byte(answer.String()), response), answer.String())
		encoded, err := Encode(response)
		require.NoError(t, err)
		require.Equal(t, answer.String(), string(encoded))
	}
	require.Equal(t, map[string]int{PathStatus: 1, PathAdminMembers: 2, PathAdminTransfer: 1, PathAdminSnapshot: 1, PathAdminHash: 2}, seen)
}
