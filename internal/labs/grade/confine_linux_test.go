package grade

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary is also the program that is confined, and what confines it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if os.Args[1] == "confined" {
			fmt.Fprintln(os.Stderr, Confined(os.Args[2:]))
			os.Exit(1)
		}
		if do, ok := misdeeds[os.Args[1]]; ok {
			do()
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

var helper = []string{"confined"}

// misdeeds are what a student's code might do.
var misdeeds = map[string]func(){
	"-h": func() {},
	"be good": func() {
		os.NewFile(3, "channel").WriteString("a verdict")
		fmt.Println("something printed")
	},
	"loop": func() {
		for {
		}
	},
	"eat": func() {
		var eaten [][]byte
		for {
			eaten = append(eaten, make([]byte, 16<<20))
			for i := range eaten[len(eaten)-1] {
				eaten[len(eaten)-1][i] = 1
			}
		}
	},
	"talk": func() {
		for {
			fmt.Println(strings.Repeat("blah ", 1000))
		}
	},
	"list the network": func() {
		interfaces, _ := net.Interfaces()
		fmt.Println(len(interfaces), "interfaces")
		_, err := net.Dial("tcp", "192.0.2.1:80")
		fmt.Println(err)
	},
	"write a file": func() {
		file, err := os.Create("file")
		if err == nil {
			_, err = file.WriteString("text")
		}
		fmt.Println(err)
	},
	"leave a child": func() {
		child, err := os.StartProcess("/proc/self/exe", []string{"x", "loop"}, &os.ProcAttr{})
		fmt.Println(child != nil, err)
	},
}

func TestConfine(t *testing.T) {
	limits := Limits{CPU: time.Second, Memory: 128 << 20, Output: 64 << 10}
	self, err := os.Executable()
	require.NoError(t, err)
	c := newConfinement(helper)
	run := func(t *testing.T, misdeed string) outcome {
		o, err := c.run(t.Context(), limits, nil, self, misdeed)
		require.NoError(t, err)
		return o
	}
	for misdeed, ending := range map[string]Ending{
		"loop": OutOfTime, "eat": OutOfRoom, "talk": Talkative, "leave a child": Ended,
	} {
		t.Run(misdeed, func(t *testing.T) {
			t.Parallel()
			o := run(t, misdeed)
			require.Equal(t, ending, o.ending, "%s", o.printed)
			require.Empty(t, o.channel)
		})
	}
	t.Run("be good", func(t *testing.T) {
		o := run(t, "be good")
		require.Equal(t, Ended, o.ending)
		require.Equal(t, "a verdict", string(o.channel))
		require.Equal(t, "something printed\n", string(o.printed))
	})
	t.Run("write a file", func(t *testing.T) {
		require.NotContains(t, string(run(t, "write a file").printed), "nil")
	})
	t.Run("list the network", func(t *testing.T) {
		if c.namespaces == 0 {
			require.Contains(t, c.String(), "import gate")
			return
		}
		o := run(t, "list the network")
		require.Contains(t, string(o.printed), "1 interfaces") // its own loopback, which is down
		require.Contains(t, string(o.printed), "network is unreachable")
	})
}
