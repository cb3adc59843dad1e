package prochaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"raftkv/api"
	"raftkv/kvclient"
)

// Journey runs clients against a cluster that grows from one server to three
// and five, replaces three at once, loses its leader to a removal and shrinks to
// one, while leaders are killed in between; and checks what Run checks. The
// duration and the faults of the config do not count: the journey ends where it
// ends.
func Journey(ctx context.Context, config Config) (Report, error) {
	config.Servers = 1
	r := newRun(config)
	defer r.close()
	if err := r.start(); err != nil {
		return r.report, err
	}
	load := startLoad(r.endpoints(), manyClients(r.config.Clients), r.config.Seed)
	r.operator = kvclient.New(r.endpoints())
	defer r.operator.Close()
	err := journey{r}.travel(ctx)
	r.heal()
	load.stop()
	return r.report, errors.Join(err, load.check(ctx, &r.report, r.endpoints()), ctx.Err())
}

type journey struct{ *run }

// changePatience bounds one step: starting servers, catching up, the change, and
// a leader killed meanwhile.
const changePatience = 60 * time.Second

func (j journey) travel(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return j.grow(ctx, 2, 3) },
		j.killLeader,
		func(ctx context.Context) error { return j.grow(ctx, 4, 5) },
		j.killLeader,
		func(ctx context.Context) error { return j.replace(ctx, []int{1, 2, 3}, []int{6, 7, 8}) },
		j.snapshots,
		j.killLeader,
		j.removeLeader,
		j.removeLeader,
		j.removeLeader,
		j.removeLeader,
	} {
		if err := sleep(ctx, j.between(200, 600)); err != nil {
			return err
		}
		stepCtx, cancel := context.WithTimeout(ctx, changePatience)
		err := step(stepCtx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// grow starts servers that join, and lets them vote.
func (j journey) grow(ctx context.Context, ids ...int) error {
	added, err := j.addLearners(ctx, ids)
	if err != nil {
		return err
	}
	return j.change(ctx, "promote", func(r *api.MembersRequest) { r.Promote = added })
}

// replace lets new servers vote in the place of others, all in one change.
func (j journey) replace(ctx context.Context, old, next []int) error {
	added, err := j.addLearners(ctx, next)
	if err != nil {
		return err
	}
	err = j.change(ctx, "replace", func(r *api.MembersRequest) {
		r.Promote = added
		for _, id := range old {
			r.Remove = append(r.Remove, uint64(id))
		}
	})
	if err != nil {
		return err
	}
	j.retire(old...)
	return nil
}

func (j journey) addLearners(ctx context.Context, ids []int) (added []uint64, err error) {
	for _, id := range ids {
		s, err := j.newServer(id)
		if err != nil {
			return nil, err
		}
		j.logf("server %d joins", id)
		s.args = append(j.commonArgs(s), "--join", j.servers[0].http.address())
		j.servers = append(j.servers, s)
		if err := s.start(); err != nil {
			return nil, err
		}
		err = j.change(ctx, "add", func(r *api.MembersRequest) {
			r.Add = []api.NewMember{{ID: uint64(id), Raft: s.raft.address()}}
		})
		if err != nil {
			return nil, err
		}
		added = append(added, uint64(id))
	}
	return added, nil
}

// removeLeader takes the leader out of the cluster.
func (j journey) removeLeader(ctx context.Context) error {
	leader, err := j.leader(ctx)
	if err != nil {
		return err
	}
	j.logf("server %d, which leads, is removed", leader.id)
	err = j.change(ctx, "remove", func(r *api.MembersRequest) { r.Remove = []uint64{uint64(leader.id)} })
	if err != nil {
		return err
	}
	j.retire(leader.id)
	return nil
}

// change makes one change of the members, against whatever the configuration is
// by then: what it asks for is the same.
func (r *run) change(ctx context.Context, what string, fill func(*api.MembersRequest)) error {
	for {
		now, err := r.operator.Members(ctx)
		if err == nil {
			request := api.MembersRequest{Expected: now.Index}
			fill(&request)
			var done *api.MembersResponse
			if done, err = r.operator.ChangeMembers(ctx, request); err == nil {
				r.logf("%s: configuration %d, voters %v, learners %v", what, done.Index, done.Voters, done.Learners)
				return nil
			}
		}
		var refused *kvclient.StatusError
		if errors.As(err, &refused) && refused.Status == api.StatusBadRequest {
			return fmt.Errorf("%s: %w", what, err)
		}
		if sleepErr := sleep(ctx, 20*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, sleepErr))
		}
	}
}

// retire ends servers that are no members any more.
func (j journey) retire(ids ...int) {
	j.servers = slices.DeleteFunc(j.servers, func(s *server) bool {
		if !slices.Contains(ids, s.id) {
			return false
		}
		s.close()
		return true
	})
}

func (j journey) killLeader(ctx context.Context) error {
	leader, err := j.leader(ctx)
	if err != nil {
		return err
	}
	j.report.Faults[KillLeader]++
	return j.killAndRestart(ctx, KillLeader, nil, leader)
}

// snapshots lets every server cut its log short.
func (j journey) snapshots(ctx context.Context) error {
	for _, s := range j.servers {
		taken, err := j.operator.TakeSnapshot(ctx, s.http.target())
		if err != nil {
			return err
		}
		j.logf("server %d took a snapshot of index %d, %d bytes", s.id, taken.Index, taken.Bytes)
	}
	return nil
}

// changeMembers takes a server's vote away and gives it back. Every other time
// the server leaves altogether, loses its disk, and joins again under its old id.
func (r *run) changeMembers(ctx context.Context, victim *server) error {
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	id := []uint64{uint64(victim.id)}
	if r.report.Faults[Members]%2 == 0 {
		err := r.change(ctx, "demote", func(m *api.MembersRequest) { m.Demote = id })
		if err != nil {
			return err
		}
		if err := sleep(ctx, r.between(50, 500)); err != nil {
			return err
		}
		return r.change(ctx, "promote", func(m *api.MembersRequest) { m.Promote = id })
	}
	if err := r.change(ctx, "remove", func(m *api.MembersRequest) { m.Remove = id }); err != nil {
		return err
	}
	victim.kill()
	if err := os.RemoveAll(filepath.Join(victim.dir, "data")); err != nil {
		return err
	}
	r.logf("members: server %d comes back with an empty disk", victim.id)
	via := r.servers[(slices.Index(r.servers, victim)+1)%len(r.servers)]
	victim.args = append(r.commonArgs(victim), "--join", via.http.address())
	if err := victim.start(); err != nil {
		return err
	}
	err := r.change(ctx, "add", func(m *api.MembersRequest) {
		m.Add = []api.NewMember{{ID: uint64(victim.id), Raft: victim.raft.address()}}
	})
	if err != nil {
		return err
	}
	return r.change(ctx, "promote", func(m *api.MembersRequest) { m.Promote = id })
}

func (r *run) newServer(id int) (*server, error) {
	s := &server{id: id, binary: r.config.Binary, dir: filepath.Join(r.config.Dir, fmt.Sprint(id))}
	var err error
	if s.raft, err = newProxy(true); err != nil {
		return nil, err
	}
	if s.http, err = newProxy(false); err != nil {
		s.raft.close()
		return nil, err
	}
	return s, nil
}

// commonArgs are what every server is started with.
func (r *run) commonArgs(s *server) []string {
	return []string{
		"serve", "--id", fmt.Sprint(s.id), "--data", filepath.Join(s.dir, "data"),
		"--http", "127.0.0.1:0", "--raft", "127.0.0.1:0",
		"--election-timeout", r.config.ElectionTimeout.String(),
	}
}
