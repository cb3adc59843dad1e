package sim

import (
	"fmt"
	"strings"
	"time"
)

// chapters draws what the paper's Figure 2 leaves out: snapshots, reads beside
// the log, changes of the members and transfers. A third of the seeds go without
// each. The stream is one of its own, so that what a seed drew before is the same.
func (d *plan) chapters(s *source) {
	const ms = time.Millisecond
	timeout := d.electionTimeout
	if !s.oneIn(3) {
		d.snapshotBytes = pick(s, 0, 300, 1000, 3000, 10_000)
		d.snapshotTime = pick(s, ms, 20*ms, timeout, 5*timeout, 20*timeout)
		d.raft.TrailingBytes = pick(s, 1, 1, 100, 1000, 5000)
		if d.raft.MaxBatchBytes == 1 {
			d.raft.MaxBatchBytes = 50 // also the size of a snapshot's parts
		}
		d.spoiledParts = rate(s, pick(s, 20, 100))
		d.faults[askSnapshot] = pick(s, 1, 4)
		d.triggers[onSnapshot] = rate(s, pick(s, 10, 100, 500))
	}
	if !s.oneIn(3) {
		d.levels = [levels]int{byLog: s.between(0, 2), byRound: s.between(1, 4), byLease: s.between(0, 3), stale: s.between(0, 1)}
		d.anywhere = pick(s, 0, 300, 900)
	}
	if !s.oneIn(3) {
		d.faults[transferLeader] = pick(s, 1, 2, 4)
		d.faults[endServer] = pick(s, 0, 1, 2)
		d.triggers[onTransfer] = rate(s, pick(s, 10, 100, 500))
	}
	if s.oneIn(3) {
		d.changeEvery = pick(s, 100*ms, 300*ms, time.Second)
		d.spares = s.between(1, max(1, 7-d.nodes))
		d.triggers[onChange] = rate(s, pick(s, 10, 100, 500))
		// Who was removed and has not heard of it campaigns for ever. Only who hears a
		// leader can know better; and the operator looks after lost disks.
		d.raft.DisableQuorumCheck = false
		d.faults[wipeDisk] = 0
	}
	if d.levels[byLease] > 0 && !d.raft.DisableQuorumCheck {
		// Within the bound that leases need. What is beyond it is not promised.
		for i, rate := range d.clockRate {
			d.clockRate[i] = min(max(rate, 950), 1050)
		}
		d.faults[warpClock] = 0
	}
	switch s.below(12) {
	case 0, 1:
		d.disputedLease(s)
	case 2:
		d.chasedFollower(s)
	}
	for len(d.clockRate) < d.nodes+d.spares { // where none was drawn
		d.clockRate = append(d.clockRate, 1000)
	}
}

// disputedLease draws together what it takes to see two leaders at once, one of
// them under a lease: servers that are back at once after a crash, links that are
// cut in one direction so that a follower stands for election whom the others
// hear, answers that are slow to reach the leader, and many reads.
func (d *plan) disputedLease(s *source) {
	timeout := d.electionTimeout
	d.nodes, d.spares, d.changeEvery = 3, 0, 0
	d.clockRate = []int{1000, 1000, 1000}
	d.raft.DisableQuorumCheck = false
	d.heartbeat = timeout / 10
	d.levels = [levels]int{byLease: 5, byRound: 1}
	d.anywhere = 300
	d.clients, d.width, d.anonymous, d.simple = 4, 4, 1, 1
	d.burst = 0
	d.operations = 400
	d.slowLinks = []slowLink{{s.below(3), s.below(3), timeout / time.Duration(s.between(2, 6))}}
	d.linkDelay, d.linkJitter = timeout/100, timeout/50
	d.drop, d.late = 0, 0
	d.saveTime, d.slowSave = 0, 0
	d.loopDelay, d.applyDelay = 0, 0
	d.downTime = time.Millisecond
	d.faultEvery = timeout
	d.faults = [faultKinds]int{isolateLeader: 2, oneWayCut: 4, cutLink: 4, crashServer: 6, deafServer: 1, muteServer: 1, transferLeader: 2}
	d.triggers = [triggers]int{}
}

// chasedFollower draws together what it takes for snapshots to meet logs that are
// not just too short: old leaders with much that was never committed, acknowledgements
// that are lost, snapshots after every few commands, and nearly no log behind them.
func (d *plan) chasedFollower(s *source) {
	timeout := d.electionTimeout
	d.nodes, d.spares, d.changeEvery = pick(s, 3, 3, 5), 0, 0
	d.clockRate, d.slowLinks = d.clockRate[:0], nil
	d.snapshotBytes = pick(s, 1, 100, 200)
	d.snapshotTime = pick(s, time.Millisecond, timeout/2, 10*timeout)
	d.raft.TrailingBytes = 1
	d.raft.MaxBatchBytes = pick(s, 100, 1000)
	d.raft.MaxBacklogBytes, d.raft.MaxInflight = 0, 0
	d.clients, d.width, d.anonymous, d.simple = 8, 2, 2, 2
	d.burst, d.operations = 0, 400
	d.patience, d.giveUp = timeout, 20*timeout
	d.levels = [levels]int{}
	d.drop, d.late, d.lateBy = s.between(50, 250), s.between(20, 100), 3*timeout
	d.saveTime = min(d.saveTime, timeout/50)
	d.faultEvery = 5 * timeout
	d.faults = [faultKinds]int{isolateLeader: 6, isolateServer: 3, splitNetwork: 3, loseMessages: 2, crashLeader: 1, askSnapshot: 1, deafServer: 1, muteServer: 2}
}

// describeChapters is the part of String about them.
func (d *plan) describeChapters(b *strings.Builder) {
	if d.raft.TrailingBytes > 0 {
		fmt.Fprintf(b, "snapshots every %d B of commands, in %v, with %d B of log behind; of 1000 parts %d spoiled\n",
			d.snapshotBytes, d.snapshotTime, d.raft.TrailingBytes, d.spoiledParts)
	}
	if d.levels != ([levels]int{}) {
		fmt.Fprintf(b, "reads by %v: %v, of 1000 at any server %d\n", levelNames, d.levels, d.anywhere)
	}
	if d.changeEvery > 0 {
		fmt.Fprintf(b, "members change every %v, with %d servers more\n", d.changeEvery, d.spares)
	}
}
