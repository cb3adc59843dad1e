package kvservice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"raftkv/api"
	"raftkv/raft"
)

// changePoll is how often a request for a change looks whether it is finished.
const changePoll = 10 * time.Millisecond

// listMembersPath is GET PathAdminMembers on its way to the leader, where a
// request has no method.
const listMembersPath = "list-members"

// isAdmin reports whether path is for those who run the cluster.
func isAdmin(path string) bool {
	return path == api.PathAdminMembers || path == api.PathAdminTransfer || path == api.PathAdminSnapshot || path == api.PathAdminHash
}

// allowedMethods is the Allow header of a path.
func allowedMethods(path string) string {
	if path == api.PathAdminMembers || path == api.PathAdminSnapshot || path == api.PathAdminHash {
		return "GET, POST"
	}
	return http.MethodPost
}

// serveAdminGet serves the admin paths that can be read, and reports whether
// this was one.
func (s *KVService) serveAdminGet(w http.ResponseWriter, req *http.Request, path string, visit *visit) bool {
	if req.Method != http.MethodGet || !isAdmin(path) {
		return false
	}
	if !visit.enter(s.door.admin) {
		writeAnswer(w, s.noPlace(s.door.admin))
		return true
	}
	switch path {
	case api.PathAdminMembers:
		ctx, cancel := context.WithTimeout(req.Context(), s.config.RequestTimeout)
		defer cancel()
		a := s.administer(ctx, listMembersPath, nil, true)
		writeBytes(w, api.HTTPStatus(a.Status), a)
	case api.PathAdminSnapshot:
		s.serveSnapshot(w, req)
	case api.PathAdminHash:
		s.serveHash(w, req)
	default:
		return false
	}
	return true
}

// serveSnapshot sends the present state as a snapshot file. It holds every write
// that was answered before it was asked for, unless a stale one will do: then
// it is what this server has, and nobody else is asked.
func (s *KVService) serveSnapshot(w http.ResponseWriter, req *http.Request) {
	switch level := api.Consistency(req.URL.Query().Get("consistency")); level {
	case api.ConsistencyStale:
	case "", api.ConsistencyLinearizable:
		ctx, cancel := context.WithTimeout(req.Context(), s.config.RequestTimeout)
		defer cancel()
		index, refusal := s.readIndex(ctx, api.ConsistencyLinearizable)
		if refusal == nil {
			refusal = s.awaitApplied(ctx, index)
		}
		if refusal != nil {
			writeAnswer(w, refusal)
			return
		}
	default:
		writeAnswer(w, api.Refuse(api.StatusBadRequest, fmt.Sprintf("consistency %q is no level for a snapshot; use linearizable or stale", level)))
		return
	}
	if !s.door.downloads.take() {
		writeAnswer(w, s.refuse(api.StatusBusy, fmt.Sprintf("%d snapshots are being sent already; try again when one has ended, or ask another server", maxDownloads)))
		return
	}
	defer s.door.downloads.give()
	s.mu.Lock()
	state, at := s.machine.Clone(), s.applied
	s.mu.Unlock()
	if at.Index == 0 {
		writeAnswer(w, api.Refuse(api.StatusNotFound, fmt.Sprintf("server %d has applied nothing yet, so there is nothing to save", s.config.ID)))
		return
	}
	header := SnapshotHeader{
		Cluster:       fmt.Sprintf("%016x", uint64(s.config.Cluster)),
		ClusterName:   s.config.ClusterName,
		Server:        uint64(s.config.ID),
		Index:         uint64(at.Index),
		Term:          uint64(at.Term),
		Configuration: ConfigurationOf(at.configuration, at.configurationIndex),
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if WriteSnapshotFile(stallingWriter{w, http.NewResponseController(w), s.answerTime}, header, state.WriteSnapshot) != nil {
		// The answer has begun already. A connection that breaks is how the client
		// learns that this is not all of it.
		panic(http.ErrAbortHandler)
	}
}

// stallingWriter gives every piece of a long answer the time that a whole one
// has otherwise: a client that takes nothing in is still cut off.
type stallingWriter struct {
	http.ResponseWriter
	deadline *http.ResponseController
	patience time.Duration
}

func (w stallingWriter) Write(b []byte) (int, error) {
	// A recorder in a test has no deadline, and needs none.
	_ = w.deadline.SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(b)
}

// serveTakeSnapshot takes a snapshot of this server's store. That may take
// longer than a request usually does.
func (s *KVService) serveTakeSnapshot(w http.ResponseWriter, req *http.Request, body []byte) {
	if _, err := read(&api.SnapshotRequest{}, body, s.limits); err != nil {
		writeAnswer(w, refusalOf(err))
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // see stallingWriter
	start := time.Now()
	index, size, err := s.TakeSnapshot(req.Context())
	if err != nil {
		writeAnswer(w, s.refuse(api.StatusBusy, fmt.Sprintf("server %d could not take a snapshot: %v; try again", s.config.ID, err)))
		return
	}
	writeAnswer(w, &api.SnapshotResponse{
		RespStatus: api.StatusOK,
		Outcome:    api.OutcomeApplied,
		Index:      uint64(index),
		Bytes:      size,
		Millis:     uint64(time.Since(start).Milliseconds()),
	})
}

// administer answers a request about members or leadership, here if this server
// leads, else through the leader.
func (s *KVService) administer(ctx context.Context, path string, body []byte, mayForward bool) answerBytes {
	var members api.MembersRequest
	var transfer api.TransferRequest
	var err error
	switch path {
	case listMembersPath:
	case api.PathAdminHash:
		_, err = read(&api.HashRequest{}, body, s.limits)
	case api.PathAdminTransfer:
		_, err = read(&transfer, body, s.limits)
	case api.PathAdminMembers:
		_, err = read(&members, body, s.limits)
	default:
		return encode(api.Refuse(api.StatusNotFound, "there is no "+path+" here"))
	}
	if err != nil {
		return encode(refusalOf(err))
	}
	status := s.raft.Status()
	if leader := status.LeaderID; mayForward && leader != raft.None && leader != s.config.ID {
		return s.forward(ctx, leader, path, body)
	}
	if status.State != raft.Leader {
		return encode(s.refuse(api.StatusNotLeader, "this server does not lead; nothing was done, ask the leader"))
	}
	switch path {
	case api.PathAdminHash:
		return encode(s.mark(ctx))
	case api.PathAdminTransfer:
		return encode(s.transfer(ctx, raft.ServerID(transfer.To)))
	case api.PathAdminMembers:
		return encode(s.changeMembers(ctx, status.Term, &members))
	}
	return encode(s.membersResponse())
}

// membersResponse tells the configuration in force.
func (s *KVService) membersResponse() *api.MembersResponse {
	configuration, index := s.raft.Configuration()
	leader := s.raft.Status().LeaderID
	return &api.MembersResponse{
		RespStatus:    api.StatusOK,
		Outcome:       api.OutcomeApplied,
		Configuration: ConfigurationOf(configuration, index),
		Members:       s.members(configuration),
		Leader:        uint64(leader),
		LeaderHTTP:    s.config.HTTPAddrOf(leader),
	}
}

// ConfigurationOf is a configuration and its index as answers and snapshot files
// tell them.
func ConfigurationOf(c raft.Configuration, index raft.Index) api.Configuration {
	return api.Configuration{
		Index:     uint64(index),
		Voters:    numbersOf(c.Voters),
		OldVoters: numbersOf(c.OldVoters),
		Learners:  numbersOf(c.Learners),
	}
}

func numbersOf(ids []raft.ServerID) []uint64 {
	var numbers []uint64
	for _, id := range ids {
		numbers = append(numbers, uint64(id))
	}
	return numbers
}

// refusalOf is the answer to a request that makes no sense.
func refusalOf(err error) api.Response {
	var bad *api.RequestError
	if errors.As(err, &bad) {
		return bad.Response()
	}
	return api.Refuse(api.StatusBadRequest, err.Error())
}

// members lists who is in a configuration, as this server knows them.
func (s *KVService) members(c raft.Configuration) []api.Member {
	status, progress := s.raft.Status(), s.raft.Progress()
	var members []api.Member
	for _, id := range c.Members() {
		match := progress[id]
		if id == s.config.ID && status.State == raft.Leader {
			match = status.SavedIndex
		}
		members = append(members, api.Member{
			ID:    uint64(id),
			Raft:  c.Address(id).Addr,
			Since: uint64(c.Address(id).Since),
			HTTP:  s.config.HTTPAddrOf(id),
			Role:  roleOf(c, id),
			Match: uint64(match),

			Connected: s.raft.Connected(id),
		})
	}
	return members
}

func roleOf(c raft.Configuration, id raft.ServerID) api.MemberRole {
	now, before := slices.Contains(c.Voters, id), slices.Contains(c.OldVoters, id)
	switch {
	case now && before, now && !c.Joint():
		return api.RoleVoter
	case now:
		return api.RoleJoining
	case before:
		return api.RoleLeaving
	}
	return api.RoleLearner
}

// changeMembers makes a change and waits until its last configuration is
// committed. A request that is repeated because its answer was lost finds its
// change made; that it expects the configuration before it does no harm then.
func (s *KVService) changeMembers(ctx context.Context, term raft.Term, r *api.MembersRequest) api.Response {
	now, index := s.raft.Configuration()
	next, final := now, now
	final.OldVoters = nil
	switch {
	case now.Joint():
		// A change is on its way. If it is this one, there is nothing to ask for.
		if !inForce(final, r) {
			return s.changeRefused(raft.ErrChanging)
		}
	case raft.Index(r.Expected) == index:
		var err error
		if next, err = planChange(now, r); err != nil {
			return refusalOf(err)
		}
	case !inForce(now, r):
		return s.refuse(api.StatusConfigurationChanged, fmt.Sprintf("configuration %d is in force, not %d; nothing was done, look at it again", index, r.Expected))
	}
	if !now.Joint() {
		if _, err := s.raft.ChangeConfiguration(ctx, raft.Index(r.Expected), next); err != nil {
			return s.changeRefused(err)
		}
	}
	poll := time.NewTicker(changePoll)
	defer poll.Stop()
	for {
		now, index := s.raft.Configuration()
		status := s.raft.Status()
		switch {
		case !now.Joint() && index <= status.CommitIndex && inForce(now, r):
			return s.membersResponse()
		case status.State != raft.Leader || status.Term != term:
			return s.refuse(api.StatusFailedCommit, "this server has ceased to lead before the change was committed; the next leader finishes or drops it: look at the members")
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return s.refuse(api.StatusTimeout, "the change was not committed in time: too few of the voters answer; it goes on when they come back (raftkv status shows who is missing)")
		case <-s.stopped:
			return s.refuse(api.StatusFailedCommit, "this server is stopping; look at the members")
		}
	}
}

// changeRefused turns an error of ChangeConfiguration into an answer.
func (s *KVService) changeRefused(err error) api.Response {
	switch {
	case errors.Is(err, raft.ErrChanged):
		return s.refuse(api.StatusConfigurationChanged, "the configuration has just changed; nothing was done, look at it again")
	case errors.Is(err, raft.ErrChanging):
		return s.refuse(api.StatusBusy, "another change of the members is not finished (raftkv status shows it), or the leader is new; nothing was done, try again")
	case errors.Is(err, raft.ErrNotCaughtUp):
		return s.refuse(api.StatusNotCaughtUp, fmt.Sprintf("%v; nothing was done", err))
	case errors.Is(err, raft.ErrConfig):
		return s.refuse(api.StatusBadRequest, err.Error())
	}
	return s.refused(err)
}

// inForce reports whether everything that a request names is as it wants it.
func inForce(c raft.Configuration, r *api.MembersRequest) bool {
	for _, m := range r.Add {
		if id := raft.ServerID(m.ID); !c.Has(id) || c.Address(id).Addr != m.Raft {
			return false
		}
	}
	for _, id := range r.Promote {
		if !slices.Contains(c.Voters, raft.ServerID(id)) {
			return false
		}
	}
	for _, id := range r.Demote {
		if !slices.Contains(c.Learners, raft.ServerID(id)) {
			return false
		}
	}
	for _, id := range r.Remove {
		if c.Has(raft.ServerID(id)) {
			return false
		}
	}
	return true
}

// planChange returns the configuration that a change ends with. What makes no
// sense is refused here, before anything is appended (pitfall MB-11).
func planChange(now raft.Configuration, r *api.MembersRequest) (raft.Configuration, error) {
	voters, learners, addresses := slices.Clone(now.Voters), slices.Clone(now.Learners), slices.Clone(now.Addresses)
	take := func(ids *[]raft.ServerID, id raft.ServerID) bool {
		before := len(*ids)
		*ids = slices.DeleteFunc(*ids, func(x raft.ServerID) bool { return x == id })
		return len(*ids) < before
	}
	for _, m := range r.Add {
		id := raft.ServerID(m.ID)
		if now.Has(id) {
			return now, badChange("server %d is a member already, at %s; remove it first, or choose another id", id, now.Address(id).Addr)
		}
		for _, a := range now.Addresses {
			if a.Addr == m.Raft {
				return now, badChange("the address %s is that of server %d; remove that one first, or choose another address", m.Raft, a.ID)
			}
		}
		learners = append(learners, id)
		addresses = append(addresses, raft.Address{ID: id, Addr: m.Raft})
	}
	for _, n := range r.Promote {
		id := raft.ServerID(n)
		if !take(&learners, id) {
			if now.IsVoter(id) {
				return now, badChange("server %d is a voter already", id)
			}
			return now, badChange("server %d is not a member; add it first", id)
		}
		voters = append(voters, id)
	}
	for _, n := range r.Demote {
		id := raft.ServerID(n)
		if !take(&voters, id) {
			if now.Has(id) {
				return now, badChange("server %d is a learner already", id)
			}
			return now, badChange("server %d is not a member", id)
		}
		learners = append(learners, id)
	}
	for _, n := range r.Remove {
		id := raft.ServerID(n)
		if !take(&voters, id) && !take(&learners, id) {
			return now, badChange("server %d is not a member", id)
		}
	}
	if len(voters) == 0 {
		return now, badChange("no voter would be left; a cluster needs at least one")
	}
	next := raft.NewConfiguration(voters...)
	slices.Sort(learners)
	if len(learners) > 0 {
		next.Learners = learners
	}
	return next.WithAddresses(addresses...), nil
}

func badChange(format string, args ...any) error {
	return &api.RequestError{Status: api.StatusBadRequest, Text: fmt.Sprintf(format, args...)}
}

// transfer hands leadership over and waits until it is known who leads.
func (s *KVService) transfer(ctx context.Context, to raft.ServerID) api.Response {
	err := s.raft.TransferLeadership(ctx, to)
	switch {
	case err == nil:
	case errors.Is(err, raft.ErrNotVoter) && to == raft.None:
		return s.refuse(api.StatusBadRequest, "there is no other voter to lead")
	case errors.Is(err, raft.ErrNotVoter):
		return s.refuse(api.StatusBadRequest, fmt.Sprintf("server %d cannot lead, it is no voter", to))
	case errors.Is(err, raft.ErrTransferAborted):
		return s.refuse(api.StatusTimeout, "the other server did not take over in time, and this one leads on; the other may still be elected, or try again")
	default:
		return s.refused(err)
	}
	poll := time.NewTicker(changePoll)
	defer poll.Stop()
	for {
		switch leader := s.raft.Status().LeaderID; {
		case leader == raft.None: // an election is under way
		case to != raft.None && leader != to:
			return s.refuse(api.StatusBusy, fmt.Sprintf("server %d leads now, not server %d; try again", leader, to))
		default:
			return &api.TransferResponse{
				RespStatus: api.StatusOK,
				Outcome:    api.OutcomeApplied,
				Leader:     uint64(leader),
				LeaderHTTP: s.config.HTTPAddrOf(leader),
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return s.refuse(api.StatusTimeout, "this server leads no longer, and does not know yet who does")
		case <-s.stopped:
			return s.refuse(api.StatusFailedCommit, "this server is stopping, and does not know who leads")
		}
	}
}
