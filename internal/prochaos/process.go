package prochaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"raftkv/api"
)

// server is one place in the cluster: its proxies and files, and a process
// while one runs.
type server struct {
	id         int
	binary     string
	args       []string
	dir        string
	raft, http *proxy

	process *exec.Cmd
	exited  chan struct{}
}

// startPatience bounds how long a process may take to serve.
const startPatience = 20 * time.Second

// stopPatience bounds how long it may take to stop: handing over, and answering
// what is under way.
const stopPatience = 15 * time.Second

// start runs the process and waits until it serves.
func (s *server) start() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	process := exec.Command(s.binary, s.args...)
	process.Stderr = log
	stdout, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	s.process, s.exited = process, make(chan struct{})
	serving := make(chan string, 1)
	go func() {
		defer close(s.exited)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "serving: ") {
				continue // what comes before it
			}
			select {
			case serving <- lines.Text():
			default:
			}
		}
		io.Copy(io.Discard, stdout)
		process.Wait()
	}()
	select {
	case line := <-serving:
		// serving: server 1, clients at http://ADDR, servers at ADDR
		fields := strings.Fields(strings.NewReplacer(",", "", "http://", "").Replace(line))
		if len(fields) != 9 {
			return fmt.Errorf("server %d said %q where it should have said where it serves", s.id, line)
		}
		s.http.lead(fields[5])
		s.raft.lead(fields[8])
		return nil
	case <-s.exited:
		return fmt.Errorf("server %d ended at its start: %s", s.id, s.lastLine())
	case <-time.After(startPatience):
		return fmt.Errorf("server %d does not serve after %v: %s", s.id, startPatience, s.lastLine())
	}
}

// lastLine returns the last line that the server logged.
func (s *server) lastLine() string {
	data, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

func (s *server) running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once and waits until it is gone.
func (s *server) kill() {
	if s.process == nil {
		return
	}
	s.process.Process.Kill()
	<-s.exited
}

// close ends the process and its proxies.
func (s *server) close() {
	s.kill()
	s.raft.close()
	s.http.close()
}

// terminate asks the process to stop, as an operator would, and waits until it
// has, which must be soon and without complaint.
func (s *server) terminate() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(stopPatience):
		return fmt.Errorf("server %d has not stopped %v after SIGTERM", s.id, stopPatience)
	}
	if code := s.process.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("server %d stopped with exit code %d after SIGTERM: %s", s.id, code, s.lastLine())
	}
	return nil
}

// status asks the server itself, not through the proxy.
func (s *server) status(ctx context.Context) (st api.StatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http.target()+api.PathStatus, nil)
	if err != nil {
		return st, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// tearTail writes garbage behind the last record of the log, as a write that
// was under way when the power failed would leave there. What had been synced
// stays whole: to damage that would be to take back a promise, and no program
// can tell the two apart (docs/storage.md).
func (s *server) tearTail(random *rand.Rand) error {
	segments, err := filepath.Glob(filepath.Join(s.dir, "data", "log-*"))
	if err != nil || len(segments) == 0 {
		return errors.Join(err, fmt.Errorf("server %d has no log segments", s.id))
	}
	slices.Sort(segments)
	file, err := os.OpenFile(segments[len(segments)-1], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	// A record ends at a multiple of 8, and its own last bytes may be zeros: 32
	// bytes on there is nothing of it any more.
	at := (end+7)/8*8 + 32
	garbage := make([]byte, 8+random.IntN(3000))
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	if at+len(garbage) > len(data) {
		return nil // the segment is full to the end
	}
	_, err = file.WriteAt(garbage, int64(at))
	return err
}
