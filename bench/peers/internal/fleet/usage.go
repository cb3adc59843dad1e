package fleet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of the times in /proc: 1/100 s on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the user and system time that the running processes have used.
func (f *Fleet) CPU() time.Duration {
	var sum time.Duration
	for _, pid := range f.Pids() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		// The second field, the name in brackets, may hold anything; behind it utime
		// and stime are the 12th and 13th.
		_, rest, _ := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			sum += ticks(fields[11]) + ticks(fields[12])
		}
	}
	return sum
}

// RSS returns the resident memory of each running process, in MiB.
func (f *Fleet) RSS() []int {
	var all []int
	for _, pid := range f.Pids() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(b)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
				kib, _ := strconv.Atoi(fields[1])
				all = append(all, kib/1024)
			}
		}
	}
	return all
}

// OwnCPU returns the time that this process has used, which makes the load.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// MachineCPU returns the time that all cores together were busy since the machine
// was started, with whatever it was.
func MachineCPU() time.Duration {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	var busy time.Duration
	for i, field := range strings.Fields(line) {
		switch i {
		case 1, 2, 3, 6, 7, 8: // user, nice, system, irq, softirq, steal; 4 and 5 are idle
			busy += ticks(field)
		}
	}
	return busy
}

func ticks(field string) time.Duration {
	n, _ := strconv.Atoi(field)
	return time.Duration(n) * tick
}
