package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"raftkv/internal/core"
	"raftkv/raft"
)

// story puts a title and a cluster of three before the lines.
func story(t *testing.T, lines string) *Story {
	s, err := Parse("story.txt", "# A story.\n# config: prevote=off quorumcheck=off\n\ncluster 1 2 3\n"+lines)
	require.NoError(t, err)
	return s
}

func TestHeaders(t *testing.T) {
	s, err := Parse("story.txt", `# It has a title
# of two lines.
# rules: AE-3 ALL-2     pitfalls: LM-02     paper: §5.3
# from: part2     config: prevote=off batch=1

cluster 1 2
# a comment
1 times out # another
`)
	require.NoError(t, err)
	assert.Equal(t, "It has a title of two lines.", s.Title)
	assert.Equal(t, []string{"AE-3", "ALL-2"}, s.Rules)
	assert.Equal(t, []string{"LM-02"}, s.Pitfalls)
	assert.Equal(t, "§5.3", s.Paper)
	assert.Equal(t, "part2", s.From)
	assert.Equal(t, config{quorumCheck: true, batch: 1, trailing: 1}, s.config)
	assert.Len(t, s.statements, 2)
}

// TestMalformed has one fault a story; the error names its line.
func TestMalformed(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"cluster 1 2", "1: a story begins with a comment"},
		{"# T", "no line says which servers"},
		{"# T\n# from: part9\ncluster 1", "2: from: is one of"},
		{"# T\n# config: speed=1\ncluster 1", `2: no setting "speed"`},
		{"# T\n# config: prevote=maybe\ncluster 1", "2: prevote is on or off"},
		{"# T\n# config: batch=0\ncluster 1", "2: batch is a number above 0"},
		{"# T\n1 times out", "2: the first statement"},
		{"# T\ncluster", "2: a cluster has servers"},
		{"# T\ncluster 0", "2: a server is a number above 0"},
		{"# T\ncluster 1 1", "2: server 1 is there twice"},
		{"# T\ncluster 1\ncluster 2", "3: there is one cluster already"},
		{"# T\ncluster 1\n1 sings", "3: no such statement"},
		{"# T\ncluster 1\nexplode", "3: no such statement"},
		{"# T\ncluster 1\n2 times out", "3: no such statement"},
		{"# T\ncluster 1\n1 submits", "3: no such statement"},
		{"# T\ncluster 1 2\ndeliver 1-2", "3: a link is"},
		{"# T\ncluster 1 2\ndeliver 1->3", "3: a link is"},
		{"# T\ncluster 1 2\ndeliver", "3: between which servers"},
		{"# T\ncluster 1 2\ncrash", "3: which servers"},
		{"# T\ncluster 1 2\ncrash 3", "3: server 3 is not in the cluster"},
		{"# T\ndisk 1 holds 1\ncluster 1", "2: no such statement"},
		{"# T\ndisk 1 holds x:1\ncluster 1", "2: an entry is term:command"},
		{"# T\ndisk 1 holds 1:a term\ncluster 1", "2: no such statement"},
		{"# T\ncluster 1\n?", "3: no such statement"},
		{"# T\ncluster 1\n? 1 is king", `3: a server is follower, precandidate, candidate or leader, not "king"`},
		{"# T\ncluster 1\n? 1 is leader in turn 1", "3: no such statement"},
		{"# T\ncluster 1\n? 1 term x", `3: "x" is not a number`},
		{"# T\ncluster 1\n? 1 log 1", "3: an entry is term:command"},
		{"# T\ncluster 1\n? 1 voted for 2", "3: server 2 is not in the cluster"},
		{"# T\ncluster 1\n? 1 waits long", "3: no such statement"},
		{"# T\ncluster 1\n? 1 next 1 5", "3: no such statement"},
		{"# T\n# config: trailing=0\ncluster 1", "2: trailing is a number above 0"},
		{"# T\ncluster 1\njoin", "3: which servers join"},
		{"# T\ncluster 1\njoin 1", "3: server 1 is there twice"},
		{"# T\ncluster 1\nmachine 1 tired", "3: no such statement"},
		{"# T\ncluster 1\n1 reads", "3: no such statement"},
		{"# T\ncluster 1\n1 reads a by heart", "3: no such statement"},
		{"# T\ncluster 1\n1 changes to 1,2", "3: there is no server 2; a server that is not in the cluster begins with: join 2"},
		{"# T\ncluster 1 2\n1 changes to 1+2+2", `3: "2+2" is not a number`},
		{"# T\ncluster 1 2\n1 changes to 1,,2", "3: a configuration is voters+learners"},
		{"# T\ncluster 1 2\n1 changes to 1 expecting x", `3: "x" is not a number`},
		{"# T\ncluster 1 2\n1 transfers from 2", "3: no such statement"},
		{"# T\ncluster 1\n? 1 refuses change", "3: no such statement"},
		{"# T\ncluster 1\n? 1 refuses x=1 bluntly", "3: no such statement"},
		{"# T\ncluster 1\n? 1 transfer fails", "3: no such statement"},
		{"# T\ncluster 1\n? 1 transfers 2", "3: no such statement"},
		{"# T\ncluster 1\n? read a is x=1", "3: no such statement"},
		{"# T\ncluster 1\n? 1 lease long", `3: "long" is not a number`},
		{"# T\ncluster 1\n? 1 log after x 1:a", `3: "x" is not a number`},
		{"# T\ncluster 1\n? 1 log 1:{1;2}", `3: "1;2" is not a number`},
	} {
		_, err := Parse("story.txt", c.text)
		if assert.Error(t, err, c.text) {
			assert.Contains(t, err.Error(), c.err)
			assert.True(t, strings.HasPrefix(err.Error(), "story.txt:"), err)
		}
	}
}

// TestFailures has one line that is wrong in each story, the last one.
func TestFailures(t *testing.T) {
	for _, c := range []struct{ lines, err string }{
		{"? 1 is leader", "server 1: expected leader, actually follower"},
		{"? 1 is follower in term 1", "expected follower in term 1, actually follower in term 0"},
		{"1 times out\n? 1 voted for 2", "expected vote for 2, actually vote for 1"},
		{"1 times out\n? disk 2 voted for 1", "disk 2: expected vote for 1, actually vote for nobody"},
		{"? 1 log 1:x", "expected log 1:x, actually log empty"},
		{"? 1 applied x=1", "expected applied x=1, actually applied nothing"},
		{"1 times out\n? 1->2 carries 2", "1->2: expected 2, actually RequestVote t1 last=0/t0"},
		{"? 1 knows leader 2", "expected leader 2, actually leader nobody"},
		{"? 1 next 2 = 1", "actually does not lead"},
		{"1 times out\ndeliver all\n? no leader", "server 1 is leader in term 1"},
		{"1 times out\ndeliver all\n? 1 refuses x=1", "server 1 has taken it"},
		{"? 1 refuses x=1 busy", "server 1 refuses for another reason"},
		{"1 times out\n? 1 waits on", "expected waits on, actually waits anew"},
		{"1 submits x=1", "server 1 refuses: raft: not the leader in term 0; no leader is known"},
		{"1 heartbeats", "the heartbeat timer of server 1 is not running"},
		{"deliver 1->2", "nothing is in flight from 1 to 2"},
		{"release 1->2", "nothing is in flight from 1 to 2"},
		{"drop 1->*", "nothing is in flight from 1 to 3"},
		{"crash 1\n1 times out", "server 1 is down"},
		{"crash 1\n? 1 term 0", "server 1 is down"},
		{"restart 1", "server 1 is running"},
		{"1 saves", "disk 1 has nothing to write"},
		{"disk 1 slow\n1 times out\ndisk 1 fast", "disk 1 is being written"},
		{"disk 1 holds 1:a", "is said before the cluster begins"},
		{"disk 1 lost", "server 1 is running"},
		{"1 takes snapshot", "state machine 1 has applied nothing yet"},
		{"1 stores snapshot", "server 1 is not taking a snapshot"},
		{"1 applies", "state machine 1 has nothing to apply"},
		{"1 ends transfer", "the transfer timer of server 1 is not running"},
		{"1 times out\ndamage 1->2", "no part of a snapshot is in flight from 1 to 2"},
		{"? 1 snapshot 1", "expected snapshot 1, actually snapshot 0"},
		{"? 1 log after 1 empty", "expected log after 1 empty, actually log empty"},
		{"? 1 configuration 1,2", "expected configuration 1,2, actually configuration 1,2,3"},
		{"1 changes to 1,2", "server 1 refuses: raft: not the leader in term 0"},
		{"1 times out\ndeliver all\n? 1 refuses change to 1,2", "server 1 has taken it"},
		{"? 1 refuses change to 1,2 changing", "server 1 refuses for another reason: raft: not the leader"},
		{"1 transfers to 2", "server 1 refuses: raft: not the leader in term 0"},
		{"? 1 transfer done", "server 1 was never asked for a transfer"},
		{"? 1 transfers to 2", "expected transfers to 2, actually transfers to nobody"},
		{"? read a waits", "there is no read a"},
		{"1 reads a\n1 reads a", "there is a read a already"},
		{"1 reads a\n? read a sees nothing", "read a: expected sees nothing, actually failed"},
		{"1 times out\ndeliver all\n1 reads a\ncrash 1\n? read a waits", "read a: expected waits, actually lost"},
		{"? 1 lease 1", "expected lease 1, actually lease 0"},
	} {
		s := story(t, c.lines)
		last := s.statements[len(s.statements)-1]
		err := s.Play(core.Raft, false)
		if assert.Error(t, err, c.lines) {
			assert.Contains(t, err.Error(), c.err)
			assert.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("story.txt:%d: ", last.line)), err)
		}
	}
}

// TestFailureEndsWithTheTrace shows a whole message.
func TestFailureEndsWithTheTrace(t *testing.T) {
	err := story(t, "1 times out\ndeliver 1->2\n? 2 is leader").Play(core.Raft, false)
	assert.EqualError(t, err, `story.txt:7: ? 2 is leader
	server 2: expected leader, actually follower
	0001 n1 candidate t1 | election timeout | follower→candidate term 0→1 votes for n1 | save, →n2 RequestVote last=0/t0, →n3 RequestVote last=0/t0
	0002 n1 candidate t1 | saved to 0 in t1
	0003 n2 follower t1 | n1: RequestVote t1 last=0/t0 | term 0→1 votes for n1 | save, →n1 vote
	0004 n2 follower t1 | saved to 0 in t1
`)
}

// clumsy is a core that panics when a message comes, or votes for everybody.
type clumsy struct {
	core.Core
	panics bool
}

func (c clumsy) Step(event raft.Event) raft.Effects {
	m, ok := event.(raft.Message)
	if ok && c.panics {
		panic("ouch")
	}
	effects := c.Core.Step(event)
	if args, ok := m.Body.(raft.RequestVoteArgs); ok {
		for i, reply := range effects.SendAfter {
			effects.SendAfter[i].Body = raft.RequestVoteReply{Term: reply.Term(), VoteGranted: true, AskedTerm: args.Term}
		}
	}
	return effects
}

func TestBrokenCoreFailsTheStory(t *testing.T) {
	play := func(panics bool) error {
		return story(t, "1 times out\n2 times out\ndeliver 1->3\ndeliver 2->3").Play(func(c raft.Config, s raft.PersistentState) (core.Core, raft.Effects, error) {
			inner, effects, err := core.Raft(c, s)
			return clumsy{inner, panics}, effects, err
		}, false)
	}
	assert.ErrorContains(t, play(true), "story.txt:7: deliver 1->3\n\tpanic: ouch")
	assert.ErrorContains(t, play(false), "story.txt:8: deliver 2->3\n\tdurability: server 3 votes for 2 in term 1, but a vote for 1 is durable")
}

// TestStatements uses what few stories need.
func TestStatements(t *testing.T) {
	assert.NoError(t, story(t, `
1 times out
duplicate 1->2
? 1->2 carries 2
drop last 1->2
hold 1->2
deliver all
? 1->2 carries 0
release 1->2
? 1->2 carries RequestVote t1 last=0/t0
`).Play(core.Raft, false), "hold is about what is in flight, not about the link")

	assert.NoError(t, story(t, `
1 times out
cut 1<->2
? 1->2 carries nothing
deliver all
1 heartbeats
? 1->2 carries nothing
? 1->3 carries 1
heal 1<->2
deliver all
1 heartbeats
deliver all
? 2 log 1:-
? 2 knows leader 1
? 1 next 2 = 2
? 1 match 2 = 1
`).Play(core.Raft, false))

	assert.NoError(t, story(t, `
1 times out
crash 2
deliver all
? 1 is leader
restart 2
? 2 log empty
`).Play(core.Raft, false), "what arrives at a server that is down is lost")

	assert.NoError(t, story(t, `
1 times out
deliver all
disk 2 slow
1 submits x=1
1 submits y=2
deliver one 1->2
deliver last 1->2
? 2 log 1:- 1:x=1
? disk 2 log 1:-
2 saves
? 2 log 1:- 1:x=1 1:y=2
? disk 2 log 1:- 1:x=1
2 saves
? disk 2 log 1:- 1:x=1 1:y=2
`).Play(core.Raft, false), "events wait while the disk is written")
}
