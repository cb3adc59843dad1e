package kvclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"raftkv/api"
	"raftkv/kvclient/numbering"
)

// Members returns the configuration in force and who is in it, which is the
// word of the leader. It is repeated until ctx ends.
func (c *KVClient) Members(ctx context.Context) (*api.MembersResponse, error) {
	return c.askForMembers(ctx, operation{method: http.MethodGet, path: api.PathAdminMembers}, "members")
}

// ChangeMembers makes one change of the members and returns the configuration
// that it ends with. It is repeated until ctx ends; that is harmless, because a
// change that was made already is not made again, and none is made to another
// configuration than r.Expected.
//
// A *[StatusError] with api.StatusConfigurationChanged says that somebody else
// was quicker, one with api.StatusNotCaughtUp that a server must get more of the
// log before it may vote. After an [UnknownError] the change may have been made,
// or may still be: Members tells.
func (c *KVClient) ChangeMembers(ctx context.Context, r api.MembersRequest) (*api.MembersResponse, error) {
	body, err := api.Encode(&r)
	if err != nil {
		return nil, &StatusError{api.StatusBadRequest, api.OutcomeNotApplied, err.Error()}
	}
	return c.askForMembers(ctx, operation{method: http.MethodPost, path: api.PathAdminMembers, body: body}, "change of members")
}

func (c *KVClient) askForMembers(ctx context.Context, op operation, what string) (*api.MembersResponse, error) {
	op.answer = func() api.Response { return new(api.MembersResponse) }
	answer, err := c.administer(ctx, op, what)
	if err != nil {
		return nil, err
	}
	return answer.(*api.MembersResponse), nil
}

// TransferLeadership hands leadership to the server to, or with 0 to the voter
// that lacks least, and returns who leads then. With 0 it is not repeated after
// an attempt whose end is not known, or leadership could move twice. After an
// [UnknownError] leadership may have moved, or may still.
func (c *KVClient) TransferLeadership(ctx context.Context, to uint64) (leader uint64, err error) {
	body, err := api.Encode(&api.TransferRequest{To: to})
	if err != nil {
		return 0, err
	}
	answer, err := c.administer(ctx, operation{
		method: http.MethodPost,
		path:   api.PathAdminTransfer,
		body:   body,
		answer: func() api.Response { return new(api.TransferResponse) },
		once:   to == 0,
	}, "transfer of leadership")
	if err != nil {
		return 0, err
	}
	return answer.Head().Leader, nil
}

// administer carries out an operation that the leader sees to.
func (c *KVClient) administer(ctx context.Context, op operation, what string) (api.Response, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var call numbering.Call
	answer, err := c.run(ctx, op, &call)
	switch {
	case err == nil:
		return answer, nil
	case call.Outcome() == api.OutcomeUnknown && op.method != http.MethodGet:
		return nil, &UnknownError{Err: fmt.Errorf("%s: %w", what, err)}
	}
	return nil, fmt.Errorf("kvclient: %s: %w", what, err)
}

// TakeSnapshot lets one server, at an address as in [New], take a snapshot of
// its store, so that its log can be cut short. It makes one attempt, which may
// take long if the store is large. To repeat it does no harm.
func (c *KVClient) TakeSnapshot(ctx context.Context, serviceAddr string) (*api.SnapshotResponse, error) {
	answer, err := c.askOne(ctx, serviceAddr, operation{
		method: http.MethodPost,
		path:   api.PathAdminSnapshot,
		body:   []byte("{}"),
		answer: func() api.Response { return new(api.SnapshotResponse) },
	}, "snapshot")
	if err != nil {
		return nil, err
	}
	return answer.(*api.SnapshotResponse), nil
}

// SaveSnapshot writes a snapshot file, as of GET /admin/snapshot (docs/http.md), of
// the present store of one server, at an address as in [New], to w. It makes one
// attempt.
// level is api.ConsistencyLinearizable, and then the file holds every write that
// was acknowledged before the call; or api.ConsistencyStale, for a server that
// no leader can be reached from. After an error w holds a part of a file, or
// nothing; that a file is whole, only its reader can tell.
func (c *KVClient) SaveSnapshot(ctx context.Context, serviceAddr string, level api.Consistency, w io.Writer) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = c.download(ctx, normalEndpoint(serviceAddr)+api.PathAdminSnapshot+"?consistency="+url.QueryEscape(string(level)), w)
	if err != nil && ctx.Err() != nil {
		err = &GaveUpError{Cause: context.Cause(ctx)}
	}
	if err != nil {
		return fmt.Errorf("kvclient: snapshot: %w", err)
	}
	return nil
}

func (c *KVClient) download(ctx context.Context, from string, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err // the caller knows the address
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		_, err := io.Copy(w, resp.Body)
		return err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	var refusal api.ErrorResponse
	if err := api.DecodeResponse(data, &refusal); err != nil {
		return fmt.Errorf("HTTP %d: %w", resp.StatusCode, err)
	}
	return newStatusError(refusal)
}
