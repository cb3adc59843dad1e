package search

import (
	"slices"

	"raftkv/raft"
)

// renaming calls servers by other names: to[i] is the new name of server i; 0
// stays nobody.
type renaming struct{ to [maxNodes + 1]raft.ServerID }

func (r *renaming) of(id raft.ServerID) raft.ServerID { return r.to[id] }

func (r *renaming) message(m raft.Message) raft.Message {
	m.From, m.To = r.of(m.From), r.of(m.To)
	switch body := m.Body.(type) {
	case raft.RequestVoteArgs:
		body.CandidateID = r.of(body.CandidateID)
		m.Body = body
	case raft.AppendEntriesArgs:
		body.LeaderID = r.of(body.LeaderID)
		m.Body = body
	}
	return m
}

// renamings returns all renamings of n servers, first the one that changes nothing.
func renamings(n int) (all []renaming) {
	var r renaming
	for i := range n {
		r.to[i+1] = raft.ServerID(i + 1)
	}
	var permute func(k int)
	permute = func(k int) {
		if k > n {
			all = append(all, r)
			return
		}
		for i := k; i <= n; i++ {
			r.to[k], r.to[i] = r.to[i], r.to[k]
			permute(k + 1)
			r.to[k], r.to[i] = r.to[i], r.to[k]
		}
	}
	permute(1)
	return all
}

// key is what the servers of a state are in, under the renaming that makes it
// least. States that differ only in who is who have the same key: the core
// compares ids with each other and does not care for their size.
type key [maxNodes]form

// seen is a state that was visited, renamed as its key.
type seen struct {
	past     past
	messages set
	node     nodeID
}

// covers reports whether a state with a's servers, past and messages makes one
// with b's superfluous. More messages never make less possible: they need not
// arrive. Nor does pruning change that, because it looks at the servers only.
func (a *seen) covers(b *seen) bool {
	return a.past.covers(&b.past) && b.messages.within(a.messages)
}

// visit checks a state and puts it on the frontier, unless one that was visited
// covers it. The error is a *Violation.
//
// Of the states that the new one covers, those which still wait need not be
// looked at when the search goes depth first. Breadth first they must, because
// the new one may be farther away, and so would be what is found behind it. That
// a state found earlier covers a later one costs no shortest path: it is as near.
func (s *search) visit(st *state, how node) error {
	k, ties := s.key(st.servers)
	list := s.visited[k]
	var mine seen
	for i, r := range ties {
		renamed := s.renamed(st, r)
		if slices.ContainsFunc(list, func(old seen) bool { return old.covers(&renamed) }) {
			return nil
		}
		if i == 0 {
			mine = renamed
		}
	}
	if len(list) == 0 {
		if broken := s.check(st.servers); broken != "" {
			return s.violation(broken, how)
		}
	}
	list = slices.DeleteFunc(list, func(old seen) bool {
		covered := mine.covers(&old)
		s.nodes[old.node].covered = s.nodes[old.node].covered || covered
		return covered
	})
	mine.node = nodeID(len(s.nodes))
	st.node = mine.node
	s.visited[k] = append(list, mine)
	s.nodes = append(s.nodes, how)
	s.frontier = append(s.frontier, *st)
	s.count(st, how)
	return nil
}

func (s *search) count(st *state, how node) {
	s.report.Depth = max(s.report.Depth, int(how.depth))
	leaders := 0
	for _, server := range st.servers[:s.config.Nodes] {
		if s.servers[server].status.State == raft.Leader {
			leaders++
		}
	}
	if leaders > 1 {
		s.report.Deposed++
	}
	if st.past.applied[1] != 0 {
		s.report.Commits++
	}
}

// key returns the key of servers and the renamings that lead to it: several if
// some servers are alike.
func (s *search) key(servers [maxNodes]serverID) (least key, ties []int) {
	for r := range s.renamings {
		var k key
		for i, server := range servers[:s.config.Nodes] {
			k[s.renamings[r].to[i+1]-1] = s.servers[server].forms[r]
		}
		c := slices.Compare(k[:], least[:])
		switch {
		case ties == nil || c < 0:
			least, ties = k, append(ties[:0], r)
		case c == 0:
			ties = append(ties, r)
		}
	}
	return least, ties
}

func (s *search) renamed(st *state, r int) seen {
	if r == 0 {
		return seen{past: st.past, messages: st.messages}
	}
	out := seen{past: st.past, messages: make(set, len(st.messages))}
	for t, id := range st.past.leaderOf {
		out.past.leaderOf[t] = uint8(s.renamings[r].to[id])
	}
	for i := range s.config.Nodes {
		for m := range s.to(i, st.messages) {
			out.messages.add(s.messages[m].renamed[r])
		}
	}
	return out
}
