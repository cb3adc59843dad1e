package server

import (
	"context"
	"errors"
	"io"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// Submit appends a command to the log if this server leads, and returns where.
// That is no promise: the entry may still be overwritten, in which case
// another one appears at its index. Watch commitChan. (Figure 2, LEAD-2)
//
// A *raft.NotLeaderError or raft.ErrBusy means that nothing was appended. After
// ctx's error or ErrStopped the command may have been.
func (s *Server) Submit(ctx context.Context, command []byte) (raft.Index, raft.Term, error) {
	answers := make(chan raft.Submitted, 1)
	if err := s.Propose(command, func(a raft.Submitted) { answers <- a }); err != nil {
		return 0, 0, err
	}
	a, err := await(ctx, s, answers)
	if err != nil {
		return 0, 0, err
	}
	return a.FirstIndex, a.Term, a.Err
}

// Propose is Submit for who does not wait to hear where the command went, but for
// what becomes of it. It does not block. told is called once, with what Submit
// would return, unless the server stops first. It runs in the server's loop: it must
// not block or call back into the server. An error is raft.ErrBusy; then
// nothing was appended, and told is not called.
func (s *Server) Propose(command []byte, told func(raft.Submitted)) error {
	if !s.inbox.putSubmit(submit{command, told}) {
		return raft.ErrBusy
	}
	return nil
}

// await waits for the loop's answer. The error is ctx's, or ErrStopped.
func await[A any](ctx context.Context, s *Server, answers <-chan A) (a A, err error) {
	select {
	case a = <-answers:
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	case <-s.done:
		select {
		case a = <-answers: // it was answered first
			return a, nil
		default:
			return a, ErrStopped
		}
	}
}

// ReadIndex returns the index up to which the state machine must have applied
// before it may answer a linearizable read that begins now (thesis 6.4). It
// costs a round of messages, which all reads share that come meanwhile. A
// *raft.NotLeaderError says whom to ask instead; nothing else is to be undone
// after an error either.
func (s *Server) ReadIndex(ctx context.Context) (raft.Index, error) {
	answers := make(chan raft.Answer, 1)
	if err := s.AskReadIndex(answers); err != nil {
		return 0, err
	}
	return indexOf(await(ctx, s, answers))
}

// AskReadIndex is ReadIndex for who waits by itself. It does not block; the answer
// goes to answers, which must have room for it, unless the server stops
// first. After an error, which is raft.ErrBusy, none comes.
func (s *Server) AskReadIndex(answers chan<- raft.Answer) error {
	if !s.inbox.putRead(answers) {
		return raft.ErrBusy
	}
	return nil
}

// ChangeConfiguration begins a change of the members, see
// raft.ChangeConfiguration, and returns the index of its entry. The change has
// ended when a configuration that is not joint is committed at or behind it.
// After ctx's error or ErrStopped it may have begun.
func (s *Server) ChangeConfiguration(ctx context.Context, expected raft.Index, next raft.Configuration) (raft.Index, error) {
	return s.ask(ctx, func(id raft.RequestID) raft.Event {
		return raft.ChangeConfiguration{Request: id, Expected: expected, Next: next}
	})
}

// TransferLeadership hands leadership to a voter, or with raft.None to the one
// that lacks least, and returns when this server does not lead any more; who
// does, Status tells soon after. After raft.ErrTransferAborted it leads on.
func (s *Server) TransferLeadership(ctx context.Context, to raft.ServerID) error {
	_, err := s.ask(ctx, func(id raft.RequestID) raft.Event {
		return raft.TransferLeadership{Request: id, To: to}
	})
	return err
}

func (s *Server) ask(ctx context.Context, event func(raft.RequestID) raft.Event) (raft.Index, error) {
	answers := make(chan raft.Answer, 1)
	if !s.inbox.putQuestion(question{event, answers}) {
		return 0, raft.ErrBusy
	}
	return indexOf(await(ctx, s, answers))
}

func indexOf(a raft.Answer, err error) (raft.Index, error) {
	if err != nil {
		return 0, err
	}
	return a.Index, a.Err
}

// TakeSnapshot stores a snapshot of the state machine, so that the log may be
// cut short: snapshot says of which state, write writes it. It blocks until the
// snapshot is durable; the loop goes on meanwhile. One at a time. If a newer
// snapshot has come meanwhile, this one is dropped, which is no error. An error
// leaves everything as it was.
func (s *Server) TakeSnapshot(snapshot raft.Snapshot, write func(io.Writer) error) error {
	w, err := s.config.Storage.CreateSnapshot(snapshot)
	if errors.Is(err, storage.ErrOlderSnapshot) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return err
	}
	stored, err := w.Commit()
	if errors.Is(err, storage.ErrOlderSnapshot) {
		return nil
	}
	if err != nil {
		return err
	}
	s.inbox.putEvent(raft.SnapshotStored{Snapshot: stored})
	return nil
}

// Call hands a request to another server; see Transport.
func (s *Server) Call(ctx context.Context, to raft.ServerID, payload []byte) ([]byte, error) {
	return s.transport.Call(ctx, to, payload)
}
