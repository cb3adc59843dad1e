package api

import (
	"fmt"
	"os"
	"regexp"
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
	require.Len(t, rows, 19)
	for _, row := range rows {
		var r PutRequest
		err := Decode([]byte(row[1]), &r)
		if err == nil {
			err = r.Validate(Limits{})
		}
		var refused *RequestError
		require.ErrorAs(t, err, &refused, row[1])
		require.Equal(t, Status(row[2]), refused.Status, row[1])
	}
}
