package numbering

import "raftkv/api"

// Call folds what is known of each attempt at a write into what is known of
// the write. All attempts carry the same identity. The zero value is a call
// without an attempt, which has certainly not been applied.
type Call struct {
	applied bool // an answer told of the write's effect
	unknown bool // some attempt may have taken effect, or may do so still
}

// Add takes in the outcome of one more attempt. An attempt that brought no
// answer, or one that makes no sense, is [api.OutcomeUnknown]: the request may
// have been carried out, or may still lie in some queue. An attempt that never
// left this machine is [api.OutcomeNotApplied].
func (c *Call) Add(attempt api.Outcome) {
	switch attempt {
	case api.OutcomeApplied:
		c.applied = true
	case api.OutcomeNotApplied:
		// Says nothing of the attempts before it.
	default:
		c.unknown = true
	}
}

// Outcome returns what may be said of the write. A refusal speaks of its own
// attempt only, so the write is [api.OutcomeNotApplied] only if every attempt
// was, and one unknown attempt makes it unknown. Only an answer with the
// result settles that: it was found under this very identity, so it is the
// result of whichever attempt took effect, and no other will.
func (c *Call) Outcome() api.Outcome {
	switch {
	case c.applied:
		return api.OutcomeApplied
	case c.unknown:
		return api.OutcomeUnknown
	}
	return api.OutcomeNotApplied
}

// Operation returns what is known of an operation that travelled in all these
// attempts together with others. That the last one was carried out says nothing
// of the operation, whose own answer is to be added; what was unknown before is so.
func (c *Call) Operation() Call { return Call{unknown: c.unknown} }
