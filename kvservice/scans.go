package kvservice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"raftkv/api"
	"raftkv/kvservice/machine"
	"raftkv/raft"
)

// A scan of several pages reads one state. When a page says that there are more,
// the server keeps the state for the next ones, which name it by its index. To
// keep it costs nothing but what changes from then on: the old form of that stays
// in memory. So there are bounds in number and in time.
//
// An index stands for one state, on whichever server. So another server may
// answer, too, if it happens to be in that state, and never answers wrongly.
const (
	// keptScans is how many states are kept. Scans that begin while nothing is
	// written share one.
	keptScans = 16

	// scanIdle is how long a state is kept after it was last read.
	scanIdle = time.Minute

	// scanGrace is for how long after a page a scan does not have to make room for
	// one that begins. Otherwise many scans would drive out each other for ever.
	scanGrace = time.Second
)

// keptScan is a state that is kept.
type keptScan struct {
	view    *machine.View
	used    time.Time
	stale   bool      // nobody has confirmed that it was the latest
	freshAt time.Time // see KVService.freshAt
}

// scan answers a read of many keys. A first page is read under the lock, so that it
// is of one state. The bounds keep that short: values are not copied.
func (s *KVService) scan(ctx context.Context, r *api.ScanRequest) api.Response {
	if kept := s.keptScan(raft.Index(r.At)); kept != nil {
		s.countRead(r.Consistency)
		answer := page(r, kept.view)
		if kept.stale || r.Consistency == api.ConsistencyStale {
			answer.Stale, answer.AgeMillis = true, ageOf(kept.freshAt)
		}
		return answer
	}
	return s.read(ctx, r.Consistency, func() (api.Response, *api.Age) {
		if r.At != 0 && raft.Index(r.At) != s.machine.AppliedIndex() {
			return s.refuse(api.StatusScanExpired, fmt.Sprintf(
				"server %d does not have the state of index %d (any more): it was kept elsewhere, or not used for %v, or others needed the room; begin the scan again, or leave At out to go on in the newest state",
				s.config.ID, r.At, scanIdle)), new(api.Age)
		}
		view := s.machine.View()
		answer := page(r, view)
		if answer.Next != "" {
			s.keepScan(keptScan{view: view, stale: r.Consistency == api.ConsistencyStale, freshAt: s.freshAt})
		}
		return answer, &answer.Age
	})
}

// page reads a page from a state.
func page(r *api.ScanRequest, view *machine.View) *api.ScanResponse {
	items, more := view.Scan(r.Prefix, r.After, cmp.Or(r.Limit, api.DefaultScanLimit), api.MaxScanBytes)
	answer := &api.ScanResponse{RespStatus: api.StatusOK, Outcome: api.OutcomeApplied, Items: make([]api.Item, len(items))}
	for i, item := range items {
		answer.Items[i] = api.Item{Key: item.Key, Value: item.Value, Version: item.Version}
	}
	if more {
		answer.Next = items[len(items)-1].Key
	}
	answer.AppliedIndex = uint64(view.AppliedIndex())
	return answer
}

// keptScan returns the state of an index, for one more page; nil if it is not kept.
func (s *KVService) keptScan(index raft.Index) *keptScan {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.scans {
		if k.view.AppliedIndex() == index {
			k.used = time.Now()
			return new(*k)
		}
	}
	return nil
}

// keepScan keeps a state for the pages to come, if there is room. Call it with
// the lock held.
func (s *KVService) keepScan(k keptScan) {
	k.used = time.Now()
	for _, other := range s.scans {
		if other.view.AppliedIndex() == k.view.AppliedIndex() {
			other.used, other.stale = k.used, other.stale && k.stale
			return
		}
	}
	if len(s.scans) == keptScans {
		oldest := slices.MinFunc(s.scans, func(a, b *keptScan) int { return a.used.Compare(b.used) })
		if k.used.Sub(oldest.used) < scanGrace {
			return
		}
		s.scans = slices.DeleteFunc(s.scans, func(other *keptScan) bool { return other == oldest })
	}
	s.scans = append(s.scans, &k)
	if len(s.scans) == 1 {
		time.AfterFunc(scanIdle, s.forgetScans)
	}
}

// forgetScans lets go of the states that nobody reads any more, and comes back as
// long as there are others.
func (s *KVService) forgetScans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.scans = slices.DeleteFunc(s.scans, func(k *keptScan) bool { return now.Sub(k.used) >= scanIdle })
	if len(s.scans) > 0 {
		oldest := slices.MinFunc(s.scans, func(a, b *keptScan) int { return a.used.Compare(b.used) })
		time.AfterFunc(scanIdle-now.Sub(oldest.used), s.forgetScans)
	}
}
