package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"raftkv/api"
	"raftkv/kvclient"
)

// written is how a write of the command line has ended that was applied.
type written struct {
	kvclient.WriteResult
	resultLost bool // the rest is zero and means nothing, but for Duplicate
}

// writtenOrNot returns what became of a write: how it ended, or what the user is told.
func writtenOrNot(w kvclient.Write, result kvclient.WriteResult, err error) (written, error) {
	switch {
	case !errors.Is(err, kvclient.ErrDuplicate):
		return written{WriteResult: result}, writeFailure(w, err)
	case w.Op == kvclient.OpCAS:
		return written{}, unknown("%s was carried out by an earlier attempt, and the cluster has not kept whether it swapped; read the key", describe(w))
	}
	return written{WriteResult: kvclient.WriteResult{Duplicate: true}, resultLost: true}, nil
}

// write carries out one write of the command line, protected by its Idempotency-Key
// or else by the session file, unless that is "none".
func (f *clientFlags) write(ctx context.Context, stderr io.Writer, w kvclient.Write) (written, error) {
	if err := f.check(); err != nil {
		return written{}, err
	}
	if err := checkWrite(w); err != nil {
		return written{}, err
	}
	result, err := f.writeProtected(ctx, stderr, w)
	return writtenOrNot(w, result, err)
}

func (f *clientFlags) writeProtected(ctx context.Context, stderr io.Writer, w kvclient.Write) (kvclient.WriteResult, error) {
	if w.IdempotencyKey != "" || f.session == noSessionFile {
		return f.writeWithoutSession(ctx, stderr, w)
	}
	// The lock is held until the call has ended: two processes that took turns
	// only at the file could both have a write pending, and there is one place.
	file, err := openSessionFile(ctx, f.session, f.timeout)
	if err != nil {
		return kvclient.WriteResult{}, err
	}
	defer file.close()
	client, ctx, done, err := f.connect(ctx)
	if err != nil {
		return kvclient.WriteResult{}, err
	}
	defer done()

	cluster, err := client.ClusterID(ctx)
	if err != nil {
		return kvclient.WriteResult{}, notSent(w, err)
	}
	s := file.sections[cluster]
	if s != nil && s.Pending != nil {
		return kvclient.WriteResult{}, unknown("nothing was sent: it is not known how the %s before ended; run `raftkv session resume` to find out, or `raftkv session drop` to give it up", describe(*s.Pending))
	}
	if s == nil {
		id, err := client.Register(ctx)
		if err != nil {
			return kvclient.WriteResult{}, notSent(w, err)
		}
		s = &section{ClientID: id}
	}
	result, err := file.send(ctx, stderr, client, cluster, s, w)
	if sessionExpired(err) {
		// The cluster lost the session, or was started anew in an empty folder.
		// Every attempt was refused, so the write may go out under a new identity;
		// once, or a cluster that forgets every session would be asked for ever.
		id, regErr := client.Register(ctx)
		if regErr != nil {
			return kvclient.WriteResult{}, notSent(w, regErr)
		}
		result, err = file.send(ctx, stderr, client, cluster, &section{ClientID: id}, w)
	}
	return result, err
}

// checkWrite refuses what cannot be written into the session file, or read back.
func checkWrite(w kvclient.Write) error {
	switch {
	case w.Key == "":
		return refused("the key is empty; give it a name")
	case !utf8.ValidString(w.Key):
		return refused("the key %q is not valid UTF-8, which JSON cannot carry; encode it, for example as base64", w.Key)
	}
	return nil
}

// send takes the next number of s, notes in the file what it is for, sends the
// write, and removes the note when the answer says how the write ended.
func (f *sessionFile) send(ctx context.Context, stderr io.Writer, client *kvclient.KVClient, cluster string, s *section, w kvclient.Write) (kvclient.WriteResult, error) {
	s.LastRequestID++
	s.Pending = &w
	f.sections[cluster] = s
	// Before sending: after a crash the next command must find the number taken,
	// and the write under way.
	if err := f.save(); err != nil {
		return kvclient.WriteResult{}, refused("nothing was sent: cannot write the session file: %v; use another with --session", err)
	}
	result, err := client.Send(ctx, s.identity(), w)
	f.settle(stderr, cluster, err)
	return result, err
}

// settle removes the pending write of cluster, unless err leaves its end open.
func (f *sessionFile) settle(stderr io.Writer, cluster string, err error) {
	var open *kvclient.UnknownError
	if errors.As(err, &open) {
		return
	}
	f.sections[cluster].Pending = nil
	if err := f.save(); err != nil {
		// The write has ended, and that is what is reported. `session resume` will
		// bring the same answer again.
		fmt.Fprintf(stderr, "raftkv: warning: cannot write the session file: %s; run `raftkv session resume` when it can be written\n", oneLine(err.Error()))
	}
}

func (f *clientFlags) writeWithoutSession(ctx context.Context, stderr io.Writer, w kvclient.Write) (kvclient.WriteResult, error) {
	client, ctx, done, err := f.connect(ctx)
	if err != nil {
		return kvclient.WriteResult{}, err
	}
	defer done()
	if w.IdempotencyKey == "" {
		fmt.Fprintln(stderr, "raftkv: warning: --session none is unprotected; if no answer comes, nobody can tell whether the write was applied")
	}
	return client.Send(ctx, kvclient.Identity{}, w)
}

// sessionExpired reports whether the write was refused because its session is
// unknown, and certainly not applied.
func sessionExpired(err error) bool {
	var open *kvclient.UnknownError
	var status *kvclient.StatusError
	return !errors.As(err, &open) && errors.As(err, &status) && status.Status == api.StatusSessionExpired
}

// notSent is the failure of a write whose request never left.
func notSent(w kvclient.Write, err error) error {
	return unavailable("%s was not sent (%s); check --endpoints and whether the servers run (`raftkv status`)", describe(w), reason(err))
}

// writeFailure turns the error of a write into what the user is told; nil stays nil.
func writeFailure(w kvclient.Write, err error) error {
	var ready *failure
	var open *kvclient.UnknownError
	var status *kvclient.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &open) && open.IdempotencyKey != "":
		return unknown("%s may or may not have been applied (%s); the same command with the same --idempotency-key finds out", describe(w), reason(open.Err))
	case errors.As(err, &open) && open.ClientID == "":
		return unknown("%s may or may not have been applied (%s); read the key before you repeat it", describe(w), reason(open.Err))
	case errors.As(err, &open):
		return unknown("%s may or may not have been applied (%s); run `raftkv session resume` to find out, or `raftkv session drop` to give it up", describe(w), reason(open.Err))
	case errors.As(err, &status) && status.Status == api.StatusConditionFailed:
		return &failure{api.ExitNotSwapped, fmt.Sprintf("%s was not applied: %s; read it and decide again", describe(w), status.Message)}
	case errors.As(err, &status) && status.Status == api.StatusDuplicateRequest:
		return refused("%s was not applied: an earlier attempt was refused, and the cluster has not kept why; read the key and decide again", describe(w))
	case errors.As(err, &status) && makesNoSense(status):
		return refused("%s was not applied: %v; correct it", describe(w), status)
	}
	return unavailable("%s was not applied (%s); try again later (`raftkv status` shows the servers)", describe(w), reason(err))
}

// makesNoSense reports that the request was refused for what it says, so that to
// repeat it is useless.
func makesNoSense(status *kvclient.StatusError) bool {
	return api.ExitCode(api.Refuse(status.Status, "")) == api.ExitRefused
}

// reason says in a few words why a call did not end well.
func reason(err error) string {
	var gaveUp *kvclient.GaveUpError
	if !errors.As(err, &gaveUp) {
		return err.Error()
	}
	text := "no result in time"
	if errors.Is(gaveUp.Cause, context.Canceled) {
		text = "interrupted"
	}
	if gaveUp.Last != nil {
		text += "; last: " + gaveUp.Last.Error()
	}
	return text
}

// describe names a write for people, without its value.
func describe(w kvclient.Write) string {
	return fmt.Sprintf("%s %q", w.Op, w.Key)
}
