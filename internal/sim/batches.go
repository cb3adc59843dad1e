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

// batchOf returns the command with the operations of several calls.
func batchOf(parts []part) machine.Command {
	c := machine.Command{Kind: machine.KindBatch}
	for _, p := range parts {
		c.Operations = append(c.Operations, p.call.command)
	}
	return c
}
