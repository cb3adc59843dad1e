package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

const (
	maxDemoNodes = 9
	raftPortStep = 1000 // raft ports are this far above the HTTP ports

	pollEvery    = 200 * time.Millisecond
	pollPatience = 600 * time.Millisecond // a server that takes longer does not answer
)

func demoCommand() *cobra.Command {
	var nodes, basePort int
	var dir, duplicates string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster on this machine, to try things on",
		Long: `Demo runs a cluster of real servers, each a process of its own with its own
files, and shows what happens to it. Type help to see what can be done to it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Linux kills a child when the thread that started it ends, so all are
			// started from one that lasts as long as the demo.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if nodes < 1 || nodes > maxDemoNodes {
				return refused("--nodes %d is not between 1 and %d", nodes, maxDemoNodes)
			}
			if basePort < 1 || basePort+raftPortStep+nodes > 1<<16 {
				return refused("--base-port %d is out of range; give one between 1 and %d", basePort, 1<<16-raftPortStep-nodes)
			}
			if err := checkDuplicates(duplicates); err != nil {
				return err
			}
			return runDemo(cmd, nodes, basePort, dir, duplicates)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 3, "how many servers")
	cmd.Flags().IntVar(&basePort, "base-port", 8080, "the first server's HTTP port; its raft port is 1000 higher")
	cmd.Flags().StringVar(&dir, "dir", "", "keep the servers' files here; a temporary folder if not given")
	cmd.Flags().StringVar(&duplicates, "duplicates", "", duplicatesUsage)
	return cmd
}

// demo is a running demo. One goroutine owns it and prints; what happens
// elsewhere reaches it through channels.
type demo struct {
	out        io.Writer
	executable string
	children   []*child // server n is children[n-1]
	endpoints  []string
	client     *kvclient.KVClient
	cuts       [][2]int

	ended  chan ending
	views  chan view
	serves chan struct{} // takes a value when the cluster has served a read

	ready     bool
	checking  bool   // somebody waits for the cluster to serve
	leader    uint64 // as last announced
	term      uint64
	answering []bool
	known     []api.StatusResponse // the last answer of each
}

type ending struct {
	child   *child
	process *exec.Cmd
}

type view struct {
	server int
	status *api.StatusResponse // nil: no answer
}

func runDemo(cmd *cobra.Command, nodes, basePort int, dir, duplicates string) (err error) {
	executable, err := os.Executable()
	if err != nil {
		return refused("cannot find the program's own file: %v", err)
	}
	if err := checkPorts(nodes, basePort); err != nil {
		return err
	}
	folder, removeFolder, err := demoFolder(dir)
	if err != nil {
		return refused("cannot make the folder: %v; choose another with --dir", err)
	}
	defer func() {
		if rmErr := removeFolder(); rmErr != nil && err == nil {
			err = refused("cannot remove the folder %s: %v", folder, rmErr)
		}
	}()

	ctx, stopPolling := context.WithCancel(cmd.Context())
	d := &demo{
		out:        cmd.OutOrStdout(),
		executable: executable,
		ended:      make(chan ending),
		views:      make(chan view),
		serves:     make(chan struct{}),
		answering:  make([]bool, nodes),
		known:      make([]api.StatusResponse, nodes),
	}
	d.addChildren(nodes, basePort, folder)
	if duplicates != "" {
		for _, c := range d.children {
			c.args = append(c.args, "--duplicates", duplicates)
		}
	}
	d.client = kvclient.New(d.endpoints)
	defer d.endChildren()
	defer d.client.Close() // before the children end: they wait for their clients
	defer stopPolling()

	fmt.Fprintf(d.out, "starting %d servers; their files and logs are in %s\n", nodes, folder)
	for _, c := range d.children {
		if err := c.start(executable, d.notifyEnd(ctx)); err != nil {
			return refused("cannot start server %d: %v", c.id, err)
		}
	}
	for i := range d.children {
		go d.poll(ctx, i)
	}
	return d.loop(ctx, cmd.InOrStdin())
}

// checkPorts reports the first port of the demo that is taken.
func checkPorts(nodes, basePort int) error {
	for n := range nodes {
		for _, port := range []int{basePort + n, basePort + raftPortStep + n} {
			l, err := net.Listen("tcp", local(port))
			if err != nil {
				return refused("port %d is taken (is another demo running?); choose others with --base-port", port)
			}
			l.Close()
		}
	}
	return nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (d *demo) addChildren(nodes, basePort int, folder string) {
	var members []string
	for n := range nodes {
		members = append(members, fmt.Sprintf("%d=%s", n+1, local(basePort+raftPortStep+n)))
	}
	for n := range nodes {
		d.children = append(d.children, &child{
			id: n + 1,
			args: []string{"serve", "--control",
				"--id", strconv.Itoa(n + 1),
				"--data", filepath.Join(folder, fmt.Sprintf("node-%d", n+1)),
				"--http", local(basePort + n),
				"--raft", local(basePort + raftPortStep + n),
				"--cluster", strings.Join(members, ","),
			},
			log: filepath.Join(folder, fmt.Sprintf("node-%d.log", n+1)),
		})
		d.endpoints = append(d.endpoints, "http://"+local(basePort+n))
	}
}

// notifyEnd returns what reports the end of a child, while anybody listens.
func (d *demo) notifyEnd(ctx context.Context) func(*child, *exec.Cmd) {
	return func(c *child, process *exec.Cmd) {
		select {
		case d.ended <- ending{c, process}:
		case <-ctx.Done():
		}
	}
}

func (d *demo) endChildren() {
	for _, c := range d.children {
		if c.running() {
			c.control.Close() // all at once, then wait for each
		}
	}
	for _, c := range d.children {
		c.end()
	}
}

// poll asks a server for its status again and again.
func (d *demo) poll(ctx context.Context, server int) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		callCtx, cancel := context.WithTimeout(ctx, pollPatience)
		status, err := d.client.Status(callCtx, d.endpoints[server])
		cancel()
		if err != nil {
			status = nil
		}
		select {
		case d.views <- view{server, status}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// loop shows what happens and does what is typed, until quit or a signal.
func (d *demo) loop(ctx context.Context, in io.Reader) error {
	typed := make(chan string)
	go func() {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case typed <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
		// The end of input does not end the demo: it may run without a terminal.
	}()
	for {
		select {
		case <-ctx.Done():
			d.say("ending the servers")
			return nil
		case line := <-typed:
			if d.do(ctx, strings.Fields(line)) {
				d.say("ending the servers")
				return nil
			}
		case e := <-d.ended:
			if err := d.childEnded(e); err != nil {
				return err
			}
		case v := <-d.views:
			d.see(ctx, v)
		case <-d.serves:
			d.ready = true
			fmt.Fprintf(d.out, "ready: server %d leads; clients may ask any of %s\n", d.leader, strings.Join(d.endpoints, ","))
			d.suggest()
		}
	}
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// childEnded notes the end of a child. A child that ends before anything was
// ready shows that the demo cannot work.
func (d *demo) childEnded(e ending) error {
	if e.child.process != e.process {
		return nil // an earlier process, known to be gone
	}
	d.down(e.child)
	if !d.ready {
		return refused("server %d has ended: %s", e.child.id, e.child.lastWords())
	}
	d.say("server %d has ended (%v); try restart %[1]d", e.child.id, e.process.ProcessState)
	return nil
}

// down notes that a child has no process any more.
func (d *demo) down(c *child) {
	c.process = nil
	c.control.Close()
	d.answering[c.id-1] = false
	d.known[c.id-1] = api.StatusResponse{}
}

// see compares a server's answer with what was known, and says what is new.
func (d *demo) see(ctx context.Context, v view) {
	id := v.server + 1
	if !d.children[v.server].running() {
		return // it answered just before its end
	}
	if v.status == nil {
		if d.answering[v.server] {
			d.answering[v.server] = false
			d.say("server %d does not answer", id)
		}
		return
	}
	before := d.known[v.server]
	d.known[v.server] = *v.status
	if !d.answering[v.server] {
		d.answering[v.server] = true
		d.say("server %d answers (term %d, applied %d)", id, v.status.Term, v.status.Applied)
	}
	leads := v.status.Role == "leader"
	switch {
	case leads && v.status.Term > d.term:
		d.leader, d.term = v.status.ID, v.status.Term
		d.say("server %d leads term %d", id, d.term)
	case !leads && before.Role == "leader":
		d.say("server %d leads no longer; it is a %s in term %d", id, v.status.Role, v.status.Term)
	}
	if leads && !d.ready && !d.checking {
		d.checking = true
		go d.waitUntilServing(ctx)
	}
}

// waitUntilServing reads a key through the log. The answer proves more than a
// leader's word: a majority has stored an entry, and it was applied.
func (d *demo) waitUntilServing(ctx context.Context) {
	if _, err := d.client.Get(ctx, "ready"); err != nil {
		return // the demo ends
	}
	select {
	case d.serves <- struct{}{}:
	case <-ctx.Done():
	}
}

// suggest tells what to try next, in words that can be pasted.
func (d *demo) suggest() {
	program := os.Args[0]
	if strings.Contains(program, "go-build") {
		program = "go run ./cmd/raftkv" // that is how it was started
	}
	fmt.Fprintln(d.out, "In another terminal, try:")
	if strings.Join(d.endpoints, ",") != defaultEndpoints {
		fmt.Fprintf(d.out, "  export %s=%s\n", endpointsEnv, strings.Join(d.endpoints, ","))
	}
	fmt.Fprintf(d.out, "  %s put greeting hello\n  %[1]s get greeting\n  %[1]s status\n", program)
	fmt.Fprintf(d.out, "Here, type crash %d and watch a new leader come; type help for more.\n", d.leader)
}

const demoHelp = `status      what each server says of itself
crash 2     end server 2 at once, as a power cut would (SIGKILL)
restart 2   start it again, on its files
pause 2     freeze server 2 (SIGSTOP)
resume 2    let it go on (SIGCONT)
cut 1 3     break the connection between servers 1 and 3
heal        mend every broken connection
quit        end the servers and the demo
`

// do carries out what was typed, and reports whether it was quit.
func (d *demo) do(ctx context.Context, words []string) (quit bool) {
	if len(words) == 0 {
		return false
	}
	command, args := words[0], words[1:]
	wants := map[string]int{"status": 0, "help": 0, "quit": 0, "heal": 0, "crash": 1, "restart": 1, "pause": 1, "resume": 1, "cut": 2}
	n, known := wants[command]
	if !known || n != len(args) {
		d.say("%q is no command here; type help", strings.Join(words, " "))
		return false
	}
	var servers []*child
	for _, arg := range args {
		id, err := strconv.Atoi(arg)
		if err != nil || id < 1 || id > len(d.children) {
			d.say("%q is no server; there are 1 to %d", arg, len(d.children))
			return false
		}
		servers = append(servers, d.children[id-1])
	}
	switch command {
	case "quit":
		return true
	case "help":
		fmt.Fprint(d.out, demoHelp)
	case "status":
		d.status()
	case "crash":
		d.crash(servers[0])
	case "restart":
		d.restart(ctx, servers[0])
	case "pause", "resume":
		if err := servers[0].signal(command == "pause"); err != nil {
			d.say("%v", err)
		} else {
			d.say("server %d has been %sd", servers[0].id, command)
		}
	case "cut":
		d.cut(servers[0], servers[1])
	case "heal":
		d.cuts = nil
		for _, c := range d.children {
			c.order("heal")
		}
		d.say("every connection works again")
	}
	return false
}

func (d *demo) status() {
	for i, c := range d.children {
		v := nodeView{Endpoint: d.endpoints[i], Status: &d.known[i]}
		switch {
		case !c.running():
			v = nodeView{Endpoint: d.endpoints[i], Error: fmt.Sprintf("server %d is down", c.id)}
		case c.paused:
			v = nodeView{Endpoint: d.endpoints[i], Error: fmt.Sprintf("server %d is paused", c.id)}
		case !d.answering[i]:
			v = nodeView{Endpoint: d.endpoints[i], Error: fmt.Sprintf("server %d says nothing", c.id)}
		}
		fmt.Fprintln(d.out, v.line())
	}
	for _, cut := range d.cuts {
		fmt.Fprintf(d.out, "cut: %d and %d\n", cut[0], cut[1])
	}
}

func (d *demo) crash(c *child) {
	if !c.running() {
		d.say("server %d is down already", c.id)
		return
	}
	c.kill()
	d.down(c)
	d.say("server %d has crashed; restart %[1]d brings it back", c.id)
}

func (d *demo) restart(ctx context.Context, c *child) {
	if c.running() {
		d.say("server %d is running; crash %[1]d first", c.id)
		return
	}
	if err := c.start(d.executable, d.notifyEnd(ctx)); err != nil {
		d.say("cannot start server %d: %v", c.id, err)
		return
	}
	for _, cut := range d.cuts {
		d.tell(cut)
	}
	d.say("server %d has been started again", c.id)
}

// cut breaks the connection between two servers, at both ends: each drops what
// it would send and what arrives.
func (d *demo) cut(a, b *child) {
	if a == b {
		d.say("a server has no connection to itself")
		return
	}
	pair := [2]int{min(a.id, b.id), max(a.id, b.id)}
	if !slices.Contains(d.cuts, pair) {
		d.cuts = append(d.cuts, pair)
	}
	d.tell(pair)
	d.say("servers %d and %d do not hear each other; heal mends it", pair[0], pair[1])
}

func (d *demo) tell(cut [2]int) {
	d.children[cut[0]-1].order("cut %d", cut[1])
	d.children[cut[1]-1].order("cut %d", cut[0])
}
