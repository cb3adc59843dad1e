package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfilesAreForThisMachineOnly(t *testing.T) {
	for _, address := range []string{"6060", ":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "example.com:6060"} {
		_, err := serveProfiles(address)
		require.ErrorContains(t, err, "give 127.0.0.1:6060", address)
	}
	listener, err := serveProfiles("127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, err = serveProfiles(listener.Addr().String())
	require.ErrorContains(t, err, "cannot listen for profiles")

	for _, what := range []string{"profile?seconds=1", "allocs"} {
		response, err := http.Get("http://" + listener.Addr().String() + "/debug/pprof/" + what)
		require.NoError(t, err)
		profile, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, 200, response.StatusCode)
		require.Equal(t, "\x1f\x8b", string(profile[:2]), "a profile is compressed")
	}
}
