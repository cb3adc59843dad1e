package grade

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// The test binary is also the program that is confined, and what confines it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if os.Args[1] == helper[0] {
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
