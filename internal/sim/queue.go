package sim

import "time"

// happening is something that will happen at a moment of virtual time. It is a
// plain struct and not an interface: the queue holds thousands of them and
// moves millions.
type happening struct {
	at    time.Duration
	order uint64 // breaks ties: what was planned first happens first
	kind  kind
	node  int32 // whom it concerns, an index of simulation.nodes
	// What arg means depends on kind. 64 bits on every machine.
	arg uint64
}

type kind uint8

const (
	messageArrives kind = iota // arg: slot in simulation.messages
	timerRuns                  // arg: life<<8 | raft.TimerKind
	loopWakes                  // arg: life
	saveEnds                   // arg: life<<32 | number of the save
	call                       // arg: slot in simulation.calls
)

// queue is a heap of happenings, four children to a node: a quarter of the
// levels' cache misses of a binary one.
type queue struct {
	heap  []happening
	order uint64
}

func (a *happening) before(b *happening) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *queue) push(h happening) {
	q.order++
	h.order = q.order
	q.heap = append(q.heap, h)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !h.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = h
}

// pop takes out the next happening. The queue must not be empty.
func (q *queue) pop() happening {
	first := q.heap[0]
	n := len(q.heap) - 1
	last := q.heap[n]
	q.heap = q.heap[:n]
	i := 0
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, n); c++ {
			if q.heap[c].before(&q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(&last) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	if n > 0 {
		q.heap[i] = last
	}
	return first
}

// slots keeps values that happenings refer to by number, and uses the places of
// those that were taken out again.
type slots[T any] struct {
	values []T
	free   []uint64
}

func (s *slots[T]) put(v T) uint64 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		s.values[slot] = v
		return slot
	}
	s.values = append(s.values, v)
	return uint64(len(s.values) - 1)
}

func (s *slots[T]) take(slot uint64) T {
	v := s.values[slot]
	var zero T
	s.values[slot] = zero
	s.free = append(s.free, slot)
	return v
}
