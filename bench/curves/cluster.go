package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"raftkv/bench/internal/rawhttp"
)

// cluster is some raftkv serve processes on loopback, with fresh directories.
type cluster struct {
	dir     string
	servers []*server
}

type server struct {
	id      int
	http    string
	pprof   string
	process *exec.Cmd
}

// startCluster starts n servers below dir and waits for a leader.
func startCluster(program, dir string, n int) (*cluster, error) {
	dir, err := os.MkdirTemp(dir, "curves-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	addrs, err := freeAddrs(3 * n)
	if err != nil {
		return nil, err
	}
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf("%d=%s", i+1, addrs[n+i]))
	}
	for i := range n {
		s := &server{id: i + 1, http: addrs[i], pprof: addrs[2*n+i]}
		s.process = exec.Command(program, "serve", "--id", strconv.Itoa(s.id), "--data", filepath.Join(dir, strconv.Itoa(s.id)),
			"--http", s.http, "--raft", addrs[n+i], "--cluster", strings.Join(members, ","), "--log-level", "error", "--pprof", s.pprof)
		s.process.Stderr = os.Stderr
		if err := s.process.Start(); err != nil {
			c.close()
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	// An election is told to nobody outside, so the servers are asked now and then.
	ask, late := time.Tick(50*time.Millisecond), time.After(10*time.Second)
	for {
		if _, err = c.leader(); err == nil {
			return c, nil
		}
		select {
		case <-ask:
		case <-late:
			c.close()
			return nil, err
		}
	}
}

// freeAddrs returns addresses of loopback that nobody listens on.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// close kills the servers and removes their directories.
func (c *cluster) close() {
	for _, s := range c.servers {
		s.process.Process.Kill()
		s.process.Wait()
	}
	os.RemoveAll(c.dir)
}

var errNoLeader = errors.New("no server leads")

// leader returns the server that says that it leads and has answered a read.
func (c *cluster) leader() (*server, error) {
	for _, s := range c.servers {
		var status struct{ Role string }
		if err := getJSON("http://"+s.http+"/status", &status); err != nil || status.Role != "leader" {
			continue
		}
		conn := rawhttp.New(s.http, answerTimeout)
		defer conn.Close()
		_, err := post(conn, "/get", []byte(`{"Key":"x"}`))
		return s, err
	}
	return nil, errNoLeader
}

func getJSON(url string, v any) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// clockTicks is USER_HZ, in which Linux tells processor time; it is 100 everywhere.
const clockTicks = 100

// cpu returns the processor time that the server has taken, in user and kernel
// mode together; 0 where there is no /proc.
func (s *server) cpu() (seconds float64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0
	}
	// The name of the program, in brackets, may have spaces; what follows has none.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	kernel, _ := strconv.ParseFloat(fields[12], 64)
	return (user + kernel) / clockTicks
}

// profile writes a profile to a file: of the processor time of so many seconds
// from now on, or of what has been allocated since the start.
func (s *server) profile(file, what string) error {
	response, err := http.Get("http://" + s.pprof + "/debug/pprof/" + what)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, response.Body)
	return err
}
