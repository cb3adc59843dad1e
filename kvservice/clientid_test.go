package kvservice

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
)

// Two servers, or one before and after a restart, never give two clients the
// same id: the second one's writes would be taken for the first one's. So ids
// must not be counted, and one process cannot see that (pitfall SE-06).
func TestTwoProcessesIssueDifferentClientIDs(t *testing.T) {
	const child = "RAFTKV_TEST_PRINT_CLIENT_ID"
	if os.Getenv(child) != "" {
		command, _ := commandOf(operations[api.PathSession]())
		fmt.Printf("id %s\n", command.ClientID)
		return
	}
	first, second := "", ""
	for _, id := range []*string{&first, &second} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		_, err = fmt.Sscanf(string(out), "id %s", id)
		require.NoError(t, err)
		require.True(t, machine.IsIssued(api.ClientID(*id)), *id)
	}
	require.NotEqual(t, first, second)
}
