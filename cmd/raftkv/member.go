package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/api"
	"raftkv/kvclient"
)

// catchUpPoll is how often a server that is catching up is looked at.
const catchUpPoll = 300 * time.Millisecond

func memberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Show and change who takes part in the cluster",
	}
	isGroup(cmd)
	cmd.AddCommand(memberListCommand(), memberAddCommand(), memberReplaceCommand(),
		memberChangeCommand("promote ID…", "Let learners vote; waits until they have caught up", func(ctx context.Context, m *memberCall, ids []uint64) (*api.MembersResponse, error) {
			return m.settle(ctx, ids, nil)
		}),
		memberChangeCommand("demote ID…", "Take servers' votes; they stay as learners", func(ctx context.Context, m *memberCall, ids []uint64) (*api.MembersResponse, error) {
			return m.once(ctx, ids, isVoter, "has no vote", func(ids []uint64) api.MembersRequest { return api.MembersRequest{Demote: ids} })
		}),
		memberChangeCommand("remove ID…", "Take servers out of the cluster", func(ctx context.Context, m *memberCall, ids []uint64) (*api.MembersResponse, error) {
			return m.once(ctx, ids, isMember, "is not a member", func(ids []uint64) api.MembersRequest { return api.MembersRequest{Remove: ids} })
		}))
	return cmd
}

func memberListCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the members as the leader sees them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, done, err := newMemberCall(&f, cmd)
			if err != nil {
				return err
			}
			defer done()
			now, err := m.members(cmd.Context())
			if err != nil {
				return f.explain(cmd, err)
			}
			return f.printMembers(cmd.OutOrStdout(), now)
		},
	}
	f.addTo(cmd)
	return cmd
}

func memberAddCommand() *cobra.Command {
	var f clientFlags
	var learner bool
	cmd := &cobra.Command{
		Use:   "add ID=ADDR…",
		Short: "Add servers, by their raft addresses",
		Long: `Add takes servers in as learners, waits until they have caught up, and lets them
vote. Start each of them with raftkv serve --join. The command may be interrupted
and repeated; it goes on where it was.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var added []api.NewMember
			for _, arg := range args {
				m, err := parseNewMember(arg)
				if err != nil {
					return err
				}
				added = append(added, m)
			}
			return runMember(&f, cmd, func(ctx context.Context, m *memberCall) (*api.MembersResponse, error) {
				now, err := m.add(ctx, added)
				if err != nil || learner {
					return now, err
				}
				return m.settle(ctx, idsOf(added), nil)
			})
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&learner, "learner", false, "leave them learners, which get the log and decide nothing")
	return cmd
}

func memberReplaceCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "replace OLD=NEW@ADDR…",
		Short: "Put new servers in the place of others, all at once",
		Long: `Replace takes the new servers in as learners, waits until they have caught up, and
then changes the voters in one step. Start each of the new ones with raftkv serve
--join. The command may be interrupted and repeated; it goes on where it was.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var added []api.NewMember
			var removed []uint64
			for _, arg := range args {
				old, rest, ok := strings.Cut(arg, "=")
				id, err := parseID(old)
				if !ok || err != nil {
					return refused("%q is not OLD=NEW@ADDR; give for example 2=4@host:9083", arg)
				}
				m, err := parseNewMember(strings.Replace(rest, "@", "=", 1))
				if err != nil {
					return refused("%q is not OLD=NEW@ADDR; give for example 2=4@host:9083", arg)
				}
				added, removed = append(added, m), append(removed, id)
			}
			for _, m := range added {
				if slices.Contains(removed, m.ID) {
					return refused("server %d cannot take the place of a server that leaves; give the new one another id", m.ID)
				}
			}
			return runMember(&f, cmd, func(ctx context.Context, m *memberCall) (*api.MembersResponse, error) {
				if _, err := m.add(ctx, added); err != nil {
					return nil, err
				}
				return m.settle(ctx, idsOf(added), removed)
			})
		},
	}
	f.addTo(cmd)
	return cmd
}

// memberChangeCommand makes a command that takes ids.
func memberChangeCommand(use, short string, change func(context.Context, *memberCall, []uint64) (*api.MembersResponse, error)) *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ids []uint64
			for _, arg := range args {
				id, err := parseID(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return runMember(&f, cmd, func(ctx context.Context, m *memberCall) (*api.MembersResponse, error) {
				return change(ctx, m, ids)
			})
		},
	}
	f.addTo(cmd)
	return cmd
}

func parseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, refused("%q is no server id; ids are numbers from 1", text)
	}
	return id, nil
}

func parseNewMember(arg string) (api.NewMember, error) {
	number, address, ok := strings.Cut(arg, "=")
	if !ok {
		return api.NewMember{}, refused("%q is not ID=ADDR; give for example 4=host:9083, the server's --raft address", arg)
	}
	id, err := parseID(number)
	if err != nil {
		return api.NewMember{}, err
	}
	if err := api.CheckAddress(address); err != nil {
		return api.NewMember{}, refused("%q in %q is no address: %v; give host:port", address, arg, err)
	}
	return api.NewMember{ID: id, Raft: address}, nil
}

func idsOf(members []api.NewMember) []uint64 {
	var ids []uint64
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

// memberCall carries out the steps of one command. Each step looks at the
// members first, names the configuration it saw, and does only what is not done:
// so the command can be interrupted anywhere, and repeated.
type memberCall struct {
	client *kvclient.KVClient
	flags  *clientFlags
	notes  io.Writer // what happens, for people
}

func newMemberCall(f *clientFlags, cmd *cobra.Command) (*memberCall, func(), error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	client := kvclient.New(f.list())
	return &memberCall{client, f, cmd.ErrOrStderr()}, func() { client.Close() }, nil
}

// runMember runs a command and prints the configuration that it ends with.
func runMember(f *clientFlags, cmd *cobra.Command, steps func(context.Context, *memberCall) (*api.MembersResponse, error)) error {
	m, done, err := newMemberCall(f, cmd)
	if err != nil {
		return err
	}
	defer done()
	now, err := steps(cmd.Context(), m)
	if err != nil {
		return f.explain(cmd, changeFailure(err))
	}
	return f.printChange(cmd.OutOrStdout(), now)
}

func changeFailure(err error) *failure {
	var ready *failure
	var open *kvclient.UnknownError
	var status *kvclient.StatusError
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &open):
		return unknown("the change may have been made, or may still be (%s); look at `raftkv member list`, or repeat the command: what is done is not done again", reason(open.Err))
	case errors.As(err, &status) && status.Status == api.StatusConfigurationChanged:
		return &failure{api.ExitNotSwapped, "nothing was changed: somebody else has changed the members meanwhile; look at `raftkv member list` and decide again"}
	case errors.As(err, &status) && makesNoSense(status):
		return refused("nothing was changed: %s", status.Message)
	}
	return unavailable("nothing was changed (%s); repeat the command later (`raftkv status` shows the servers)", reason(err))
}

func (m *memberCall) note(format string, args ...any) {
	fmt.Fprintf(m.notes, "member: %s\n", fmt.Sprintf(format, args...))
}

func (m *memberCall) members(ctx context.Context) (*api.MembersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	now, err := m.client.Members(ctx)
	if err != nil {
		return nil, unavailable("cannot learn who the members are (%s); `raftkv status` shows each server's view", reason(err))
	}
	return now, nil
}

// change makes one change to the configuration that now describes.
func (m *memberCall) change(ctx context.Context, now *api.MembersResponse, r api.MembersRequest) (*api.MembersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	r.Expected = now.Index
	next, err := m.client.ChangeMembers(ctx, r)
	if err == nil {
		m.note("configuration %d: %s", next.Index, describeConfiguration(next.Configuration))
	}
	return next, err
}

// add makes learners of those that are no members yet.
func (m *memberCall) add(ctx context.Context, members []api.NewMember) (*api.MembersResponse, error) {
	now, err := m.members(ctx)
	if err != nil {
		return nil, err
	}
	var missing []api.NewMember
	for _, wanted := range members {
		switch known := memberOf(now, wanted.ID); {
		case known == nil:
			missing = append(missing, wanted)
		case known.Raft != wanted.Raft:
			return nil, refused("server %d is a member at %s, not at %s; remove it first, or choose another id", wanted.ID, known.Raft, wanted.Raft)
		}
	}
	if len(missing) == 0 {
		return now, nil
	}
	return m.change(ctx, now, api.MembersRequest{Add: missing})
}

// once makes the change for those of ids that fit. The others are left alone: a
// command that is repeated finds its work done.
func (m *memberCall) once(ctx context.Context, ids []uint64, fits func(*api.Member) bool, otherwise string, request func([]uint64) api.MembersRequest) (*api.MembersResponse, error) {
	now, err := m.members(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !fits(memberOf(now, id)) {
			m.note("server %d %s: nothing to do", id, otherwise)
		}
	}
	fitting := pick(now, ids, fits)
	if len(fitting) == 0 {
		return now, nil
	}
	return m.change(ctx, now, request(fitting))
}

// settle lets ids vote, once they have caught up, and removes others in the same
// step. It waits as long as something arrives: how much a server lacks says
// nothing about how long that takes.
func (m *memberCall) settle(ctx context.Context, ids, removed []uint64) (*api.MembersResponse, error) {
	var most uint64
	moved := time.Now()
	for {
		now, err := m.members(ctx)
		if err != nil {
			return nil, err
		}
		r := api.MembersRequest{Promote: pick(now, ids, notVoter), Remove: pick(now, removed, isMember)}
		if len(r.Promote)+len(r.Remove) == 0 {
			return now, nil
		}
		next, err := m.change(ctx, now, r)
		if status, ok := errors.AsType[*kvclient.StatusError](err); !ok || status.Status != api.StatusNotCaughtUp {
			return next, err
		}
		have := uint64(0)
		for _, id := range r.Promote {
			have += memberOf(now, id).Match
		}
		progress := lacking(now, r.Promote)
		if most == 0 || have > most {
			m.note("waiting: %s", progress)
			most, moved = max(have, 1), time.Now()
		}
		if time.Since(moved) > m.flags.timeout {
			return nil, unavailable("nothing has come for %v: %s; is raftkv serve --join running there? The command may be repeated", m.flags.timeout, progress)
		}
		select {
		case <-time.After(catchUpPoll):
		case <-ctx.Done():
			return nil, unavailable("interrupted: %s; repeat the command to go on", progress)
		}
	}
}

// lacking says how far servers have come.
func lacking(now *api.MembersResponse, ids []uint64) string {
	leader := memberOf(now, now.Leader)
	var words []string
	for _, id := range ids {
		text := fmt.Sprintf("server %d has got nothing yet", id)
		if have := memberOf(now, id).Match; have > 0 && leader != nil {
			text = fmt.Sprintf("server %d has %d of %d entries", id, have, leader.Match)
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// memberOf returns a member; nil if there is none with that id.
func memberOf(now *api.MembersResponse, id uint64) *api.Member {
	for i := range now.Members {
		if now.Members[i].ID == id {
			return &now.Members[i]
		}
	}
	return nil
}

func pick(now *api.MembersResponse, ids []uint64, fits func(*api.Member) bool) []uint64 {
	var picked []uint64
	for _, id := range ids {
		if fits(memberOf(now, id)) {
			picked = append(picked, id)
		}
	}
	return picked
}

func isMember(m *api.Member) bool { return m != nil }
func isVoter(m *api.Member) bool  { return m != nil && m.Role != api.RoleLearner }
func notVoter(m *api.Member) bool { return !isVoter(m) }

// describeConfiguration says who votes, in a few words.
func describeConfiguration(c api.Configuration) string {
	text := "voters " + numberList(c.Voters)
	if len(c.OldVoters) > 0 {
		text = fmt.Sprintf("voters change from %s to %s", numberList(c.OldVoters), numberList(c.Voters))
	}
	if len(c.Learners) > 0 {
		text += ", learners " + numberList(c.Learners)
	}
	return text
}

// numberList writes ids as "1, 2, 3".
func numberList(ids []uint64) string {
	if len(ids) == 0 {
		return "none"
	}
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatUint(id, 10)
	}
	return strings.Join(words, ", ")
}

// printChange prints the configuration that a change ends with.
func (f *clientFlags) printChange(out io.Writer, now *api.MembersResponse) error {
	if f.format != formatSimple {
		return f.printMembers(out, now)
	}
	_, err := fmt.Fprintf(out, "OK: %s\n", describeConfiguration(now.Configuration))
	return err
}

func (f *clientFlags) printMembers(out io.Writer, now *api.MembersResponse) error {
	switch f.format {
	case formatJSON:
		return printJSON(out, struct {
			api.Configuration
			Leader  uint64
			Members []api.Member
		}{now.Configuration, now.Leader, now.Members})
	case formatTable:
		rows := [][]any{{"ID", "ROLE", "RAFT", "HTTP", "MATCH", "LEADER"}}
		for _, m := range now.Members {
			rows = append(rows, []any{m.ID, m.Role, m.Raft, m.HTTP, m.Match, m.ID == now.Leader})
		}
		return printTable(out, rows...)
	}
	for _, m := range now.Members {
		line := fmt.Sprintf("server %d: %s, raft %s", m.ID, m.Role, m.Raft)
		if m.HTTP != "" {
			line += ", clients http://" + m.HTTP
		}
		if m.ID == now.Leader {
			line += ", leads"
		} else {
			line += fmt.Sprintf(", has %d entries", m.Match)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "configuration %d: %s\n", now.Index, describeConfiguration(now.Configuration))
	return err
}
