package kvclient

import (
	"context"
	"slices"
	"time"

	"raftkv/api"
)

const (
	// membersPatience bounds how long one look at the members may take.
	membersPatience = 5 * time.Second

	// A look that has not found everyone is repeated after a pause, which doubles.
	firstMembersPause = time.Second
	maxMembersPause   = time.Minute
)

// membership is whom the client may ask. It begins with the endpoints given to
// New. Every answer says which configuration of the cluster is in force; when
// there is a newer one, the client asks for the members in the background and
// goes on with those that it can reach. So it survives that every server is
// replaced, as long as it is used now and then meanwhile. The client's lock
// guards it; the lists are replaced, never changed.
type membership struct {
	endpoints []string
	spare     []string // given to New or members once, and maybe no members any more: they come last

	known   uint64 // the attempt.configuration whose members these are; 0 for none
	looking bool   // somebody finds out
	pause   time.Duration
}

// Endpoints returns whom the client asks now: the members that it can reach, or
// what was given to [New] as long as it knows of no others.
func (c *KVClient) Endpoints() []string {
	_, endpoints, _ := c.whomToAsk()
	return slices.Clone(endpoints)
}

// noticeConfiguration starts a look at the members if a server has told of a
// newer configuration. The caller holds the lock.
func (c *KVClient) noticeConfiguration(endpoint string, configuration uint64) {
	if configuration <= c.members.known || c.members.looking || c.closed {
		return
	}
	c.members.looking = true
	c.calls.Add(1)
	go c.findMembers(endpoint)
}

// findMembers asks endpoint who the members are, and uses them. A server knows the
// addresses of those that have talked to it, and everyone talks to the leader:
// it is asked too if endpoint leaves somebody out.
func (c *KVClient) findMembers(endpoint string) {
	defer c.calls.Done()
	ctx, cancel := context.WithTimeout(c.life, membersPatience)
	defer cancel()
	status, endpoints, whole, leader := c.membersBy(ctx, endpoint)
	if !whole && leader != "" && leader != endpoint {
		if s, more, all, _ := c.membersBy(ctx, leader); len(more) >= len(endpoints) {
			status, endpoints, whole = s, more, all
		}
	}
	pause := c.useMembers(status, endpoints, whole)
	if !whole {
		sleep(c.life, pause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members.looking = false
}

// membersBy returns what endpoint says of the members, those of them that can be
// reached, whether these are all, and who leads.
func (c *KVClient) membersBy(ctx context.Context, endpoint string) (status *api.StatusResponse, endpoints []string, whole bool, leader string) {
	a := c.try(ctx, endpoint, statusOperation())
	if a.err != nil {
		return nil, nil, false, ""
	}
	status = a.answer.(*api.StatusResponse)
	endpoints, whole = c.reachable(ctx, status)
	return status, endpoints, whole, a.leader()
}

// reachable returns the endpoints of the members. One that was not given to New
// must show that it can be reached from here and is of the same cluster: what
// servers know as their addresses may mean nothing outside their network. whole
// says that nobody is left out.
func (c *KVClient) reachable(ctx context.Context, status *api.StatusResponse) (endpoints []string, whole bool) {
	whole = true
	for _, m := range status.Members {
		endpoint := hintedEndpoint(m.HTTP)
		if endpoint == "" || !slices.Contains(c.seeds, endpoint) && !c.isOf(ctx, status.Cluster, endpoint) {
			whole = false
			continue
		}
		endpoints = append(endpoints, endpoint)
	}
	return endpoints, whole && len(endpoints) > 0
}

func (c *KVClient) isOf(ctx context.Context, cluster, endpoint string) bool {
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	a := c.try(ctx, endpoint, statusOperation())
	return a.err == nil && a.answer.(*api.StatusResponse).Cluster == cluster
}

// useMembers takes over what a look has found, and returns how long to wait
// before another one if somebody was left out. Until one has found everyone, no
// address that was good before is forgotten: it may be the one left out.
func (c *KVClient) useMembers(status *api.StatusResponse, endpoints []string, whole bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.members
	if len(endpoints) > 0 {
		others := c.seeds
		if !whole {
			others = slices.Concat(m.endpoints, m.spare, c.seeds)
		}
		m.endpoints, m.spare = endpoints, nil
		for _, other := range others {
			if !slices.Contains(endpoints, other) && !slices.Contains(m.spare, other) {
				m.spare = append(m.spare, other)
			}
		}
	}
	if whole {
		m.known, m.pause = status.Configuration.Index+1, 0
		return 0
	}
	m.pause = min(max(2*m.pause, firstMembersPause), maxMembersPause)
	return m.pause
}
