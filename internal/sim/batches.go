package sim

import (
	"raftkv/kvservice/machine"
)

// A client that makes several calls at the same time sends them as one batch. When
// the answer does not come, each goes on for itself: it is sent again alone, or with
// whatever else waits then. So the copies of one write travel in different entries.

// gather lets an attempt wait for others.
func (s *simulation) gather(call *clientCall) {
	c := call.client
	c.gathering = append(c.gathering, part{call, call.attempt})
	if len(c.gathering) > 1 {
		return
	}
	s.after(s.plan.gather, func() {
		var parts []part
		for _, p := range c.gathering {
			if p.waits() {
				parts = append(parts, p)
			}
		}
		c.gathering = nil
		if len(parts) > 0 {
			s.request(c, parts)
		}
	})
}

// An Idempotency-Key may also stand for a whole batch. That is one request: all of
// it was carried out before, or nothing, and it is sent again as it was.

// drawMembers lets a client with keys want more under the key of a call.
func (s *simulation) drawMembers(call *clientCall) {
	c := call.client
	for range c.ends.between(1, 2) {
		op := s.drawOperation(c)
		m := s.newCall(c, op)
		m.level, m.lead = byLog, call
		call.members = append(call.members, m)
	}
}

// keyedBatch returns the command of a call and its members.
func (c *clientCall) keyedBatch() machine.Command {
	command := machine.Command{Kind: machine.KindBatch, ClientID: c.key, RequestID: 1}
	command.Operations = append(command.Operations, c.command)
	for _, m := range c.members {
		command.Operations = append(command.Operations, m.command)
	}
	return command
}

// batchOf returns the command with the operations of several calls.
func batchOf(parts []part) machine.Command {
	c := machine.Command{Kind: machine.KindBatch}
	for _, p := range parts {
		c.Operations = append(c.Operations, p.call.command)
	}
	return c
}
