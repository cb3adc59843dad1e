package kvservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"raftkv/api"
)

// A server that is asked for more than it can do says so at its door. What is let
// in holds a place, and room for its bytes, until it is answered; so memory is
// bounded, and whoever is refused (Busy) knows at once that nothing was done.
// docs/operations.md lists all bounds, from the socket to the log.
const (
	maxRequests  = 2048 // of clients of the store, whose bodies have come and that are not answered
	maxAdmin     = 64   // of those who run the cluster: an overload must not keep them out
	maxDownloads = 2    // of the whole store; each holds on to a state of it

	// The first bytes of a body, and of an answer, are covered by the place. What
	// goes beyond needs room, so that large values do not keep small requests out.
	smallBytes = 16 << 10
	bodyRoom   = 32 << 20 // bytes of bodies, in all; several copies of one may exist for a while
	answerRoom = 32 << 20 // bytes of values in answers that are not sent, in all
)

// door counts what is inside.
type door struct {
	requests, admin, downloads places
	bodies, answers            room
}

func newDoor() *door { return newDoorWith(bodyRoom, answerRoom) }

func newDoorWith(bodyRoom, answerRoom int) *door {
	return &door{
		requests:  make(places, maxRequests),
		admin:     make(places, maxAdmin),
		downloads: make(places, maxDownloads),
		bodies:    room{size: bodyRoom},
		answers:   room{size: answerRoom},
	}
}

// places holds a token for each that is taken.
type places chan struct{}

// take reports whether there was a place.
func (p places) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) give() { <-p }

// room is a number of bytes that may be in use at once. What is larger than all
// of it may have all of it.
type room struct {
	size int

	mu    sync.Mutex
	used  int
	freed chan struct{} // closed when some is given back; nil if nobody waits for that
}

// tryTake reports whether there was room. If not, freed is closed when it is
// worth another look.
func (r *room) tryTake(n int) (ok bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == 0 || r.used+n <= r.size {
		r.used += n
		return true, nil
	}
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return false, r.freed
}

// take waits for room until ctx ends.
func (r *room) take(ctx context.Context, n int) bool {
	for {
		ok, freed := r.tryTake(n)
		if ok {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *room) give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// visit is what one request holds. Only the goroutine that serves the request
// uses it. A nil visit holds nothing and is never refused.
type visit struct {
	door           *door
	place          places
	bodies, answer int // bytes
}

// end gives everything back, when the answer has been sent.
func (v *visit) end() {
	if v.place != nil {
		v.place.give()
	}
	if v.bodies > 0 {
		v.door.bodies.give(v.bodies)
	}
	if v.answer > 0 {
		v.door.answers.give(v.answer)
	}
}

// enter takes a place, and reports whether there was one.
func (v *visit) enter(p places) bool {
	if !p.take() {
		return false
	}
	v.place = p
	return true
}

// holdBody makes n bytes of the body count, in place of what counted before.
func (v *visit) holdBody(n int) (ok bool) {
	more := max(0, n-smallBytes) - v.bodies
	if more <= 0 {
		return true
	}
	ok, _ = v.door.bodies.tryTake(more)
	if ok {
		v.bodies += more
	}
	return ok
}

// holdAnswer waits, until ctx ends, for room for an answer with n bytes of values.
func (v *visit) holdAnswer(ctx context.Context, n int) (ok bool) {
	if v == nil || n <= smallBytes {
		return true
	}
	if !v.door.answers.take(ctx, n) {
		return false
	}
	v.answer += n
	return true
}

// tryHoldAnswer is holdAnswer for an answer that takes up memory already.
func (v *visit) tryHoldAnswer(n int) (ok bool) {
	if v == nil || n <= smallBytes {
		return true
	}
	ok, _ = v.door.answers.tryTake(n)
	if ok {
		v.answer += n
	}
	return ok
}

var errNoRoom = errors.New("no room")

// readBody reads a body as it comes. Only what has come needs room: nobody can
// keep others out by announcing much and sending little. announced is -1 if that
// is not known. The error is errNoRoom or that of body.
func (v *visit) readBody(body io.Reader, announced int64) ([]byte, error) {
	size := 512
	if announced >= 0 {
		size = int(min(announced+1, smallBytes)) // with a byte in which to see the end
	}
	read := make([]byte, 0, size)
	for {
		n, err := body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		if err == io.EOF {
			return read, nil
		}
		if err != nil {
			return nil, err
		}
		if len(read) < cap(read) {
			continue
		}
		size = 2 * cap(read)
		if announced >= 0 {
			size = int(min(int64(size), max(announced, int64(len(read)))+1))
		}
		if !v.holdBody(size) {
			return nil, errNoRoom
		}
		read = append(make([]byte, 0, size), read...)
	}
}

// admit reads the body of a request and gives it a place. It returns a refusal
// if one of these cannot be.
func (s *KVService) admit(w http.ResponseWriter, req *http.Request, v *visit, p places) (body []byte, refusal api.Response) {
	tooLarge := func() api.Response {
		return api.Refuse(api.StatusTooLarge, fmt.Sprintf("the body is larger than %d bytes", s.limits.BodyBytes))
	}
	if req.ContentLength > int64(s.limits.BodyBytes) {
		return nil, tooLarge()
	}
	in := req.Body // ends at ContentLength
	if req.ContentLength < 0 {
		in = http.MaxBytesReader(w, in, int64(s.limits.BodyBytes))
	}
	body, err := v.readBody(in, req.ContentLength)
	if errors.Is(err, errNoRoom) {
		// The rest is read and dropped, which costs no memory. If the connection were
		// closed on a client that is still sending, it might not get to see the answer.
		if _, dropErr := io.Copy(io.Discard, in); dropErr != nil {
			err = dropErr
		}
	}
	switch {
	case err == nil && v.enter(p):
		return body, nil
	case err == nil:
		return nil, s.noPlace(p)
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge()
	case errors.Is(err, errNoRoom):
		return nil, s.refuse(api.StatusBusy, "the requests under way are too large together; nothing was done, try again after a pause")
	}
	return nil, api.Refuse(api.StatusBadRequest, "the body did not arrive whole")
}

func (s *KVService) noPlace(p places) api.Response {
	return s.refuse(api.StatusBusy, fmt.Sprintf("%d requests are under way here, which is the most; nothing was done, try again after a pause", cap(p)))
}

// valueBytes returns how many bytes of keys and values an answer carries, which
// is most of it if it is large.
func valueBytes(r api.Response) (n int) {
	switch r := r.(type) {
	case *api.GetResponse:
		return len(r.Value)
	case *api.PutResponse:
		return len(r.PrevValue)
	case *api.AppendResponse:
		return len(r.PrevValue)
	case *api.DeleteResponse:
		return len(r.PrevValue)
	case *api.CASResponse:
		return len(r.PrevValue)
	case *api.ScanResponse:
		for _, item := range r.Items {
			n += len(item.Key) + len(item.Value)
		}
	}
	return n
}

// answerHasNoRoom is said instead of an answer that was too large to be kept
// with all the others that wait to be sent. A write is done by then.
func (s *KVService) answerHasNoRoom(r api.Response) api.Response {
	const why = "too many large answers wait to be sent"
	switch r.(type) {
	case *api.GetResponse, *api.ScanResponse:
		return s.refuse(api.StatusBusy, why+"; nothing was done, try again after a pause")
	}
	return s.unknown(api.StatusTimeout, why)
}
