package search

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"raftkv/raft"
)

// messageID numbers the distinct messages so that those to one server fill
// whole words of a set: with n servers, the words i, i+n, i+2n … hold the
// messages to the server with index i.
type messageID int32

// message is a distinct message.
type message struct {
	raft.Message
	slot    int         // counts the messages to the same receiver
	renamed []messageID // under each renaming of the servers
}

func (s *search) messageAt(i, slot int) messageID {
	return messageID((slot/64*s.config.Nodes+i)*64 + slot%64)
}

// to yields the messages of a set that are addressed to the server with index i.
func (s *search) to(i int, messages set) iter.Seq[messageID] {
	return func(yield func(messageID) bool) {
		for w := i; w < len(messages); w += s.config.Nodes {
			for v := messages[w]; v != 0; v &= v - 1 {
				if !yield(messageID(w*64 + bits.TrailingZeros64(v))) {
					return
				}
			}
		}
	}
}

// dropOlder takes out the messages to server i of terms below a term.
func (s *search) dropOlder(i int, messages set, term raft.Term) {
	older := s.older[term]
	for w := i; w < min(len(older), len(messages)); w += s.config.Nodes {
		messages[w] &^= older[w]
	}
}

// internMessage gives equal messages one number, and a message's renamings
// theirs along with it.
func (s *search) internMessage(m raft.Message) messageID {
	s.pack = appendMessage(s.pack[:0], m)
	if id, known := s.messageOf[string(s.pack)]; known {
		return id
	}
	var all []messageID
	for _, r := range s.renamings {
		all = append(all, s.addMessage(r.message(m)))
	}
	for _, id := range all {
		for _, r := range s.renamings {
			s.messages[id].renamed = append(s.messages[id].renamed, s.addMessage(r.message(s.messages[id].Message)))
		}
	}
	return all[0] // the first renaming changes nothing
}

func (s *search) addMessage(m raft.Message) messageID {
	s.pack = appendMessage(s.pack[:0], m)
	if id, known := s.messageOf[string(s.pack)]; known {
		return id
	}
	to := int(m.To) - 1
	slot := s.inboxes[to]
	s.inboxes[to]++
	id := s.messageAt(to, slot)
	for int(id) >= len(s.messages) {
		s.messages = append(s.messages, make([]message, 64*s.config.Nodes)...)
	}
	s.messages[id] = message{Message: m, slot: slot}
	s.messageOf[string(s.pack)] = id
	for t := int(m.Term()) + 1; t < len(s.older); t++ {
		s.older[t].add(id)
	}
	return id
}

// appendMessage appends all that a message says, so that equal bytes mean equal
// messages.
func appendMessage(b []byte, m raft.Message) []byte {
	number := func(values ...uint64) {
		for _, v := range values {
			b = binary.AppendUvarint(b, v)
		}
	}
	flag := func(v bool) {
		if v {
			number(1)
		} else {
			number(0)
		}
	}
	number(uint64(m.From), uint64(m.To))
	switch body := m.Body.(type) {
	case raft.RequestVoteArgs:
		b = append(b, 'V')
		number(uint64(body.Term), uint64(body.CandidateID), uint64(body.LastLogIndex), uint64(body.LastLogTerm))
	case raft.RequestVoteReply:
		b = append(b, 'v')
		number(uint64(body.Term), uint64(body.AskedTerm))
		flag(body.VoteGranted)
	case raft.AppendEntriesArgs:
		b = append(b, 'A')
		number(uint64(body.Term), uint64(body.LeaderID), uint64(body.PrevLogIndex), uint64(body.PrevLogTerm), uint64(body.LeaderCommit))
		for _, e := range body.Entries {
			number(uint64(e.Term), uint64(e.Kind), uint64(len(e.Command)))
			b = append(b, e.Command...)
		}
	case raft.AppendEntriesReply:
		b = append(b, 'a')
		number(uint64(body.Term), uint64(body.AskedTerm), uint64(body.PrevLogIndex), uint64(body.MatchIndex), uint64(body.ConflictIndex), uint64(body.ConflictTerm))
		flag(body.Success)
	default:
		panic(fmt.Sprintf("the search knows no message %T", m.Body))
	}
	return b
}

// set is a set of messages, a bit for each. A set may be shorter than another;
// what lies beyond its end is not in it.
type set []uint64

func (s set) has(m messageID) bool { return s.word(int(m>>6))&(1<<(m&63)) != 0 }

func (s set) word(w int) uint64 {
	if w < len(s) {
		return s[w]
	}
	return 0
}

// add puts m into the set, which may grow and move as a slice does.
func (s *set) add(m messageID) {
	w := int(m >> 6)
	if w >= len(*s) {
		*s = append(*s, make(set, w+1-len(*s))...)
	}
	(*s)[w] |= 1 << (m & 63)
}

// within reports whether every member is one of other's.
func (s set) within(other set) bool {
	for w, v := range s {
		if v&^other.word(w) != 0 {
			return false
		}
	}
	return true
}

func (s set) len() int {
	n := 0
	for _, v := range s {
		n += bits.OnesCount64(v)
	}
	return n
}
