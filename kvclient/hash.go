package kvclient

import (
	"context"
	"fmt"
	"net/http"

	"raftkv/api"
)

// Mark puts a mark into the log and returns its index. Every server notes the
// hash of its state there; StateHash asks for it. It is repeated until ctx ends,
// which may leave several marks and does no harm.
func (c *KVClient) Mark(ctx context.Context) (index uint64, err error) {
	answer, err := c.administer(ctx, operation{
		method: http.MethodPost,
		path:   api.PathAdminHash,
		body:   []byte("{}"),
		answer: func() api.Response { return new(api.HashResponse) },
	}, "mark")
	if err != nil {
		return 0, err
	}
	return answer.(*api.HashResponse).Index, nil
}

// StateHash asks one server, at an address as in [New], what its state was at a
// mark. It makes one attempt, which waits until the server has come there. A
// *[StatusError] with api.StatusNotFound says that the server never will, or has
// forgotten it; with api.StatusTimeout, that it is still on its way.
func (c *KVClient) StateHash(ctx context.Context, serviceAddr string, index uint64) (*api.HashResponse, error) {
	answer, err := c.askOne(ctx, serviceAddr, operation{
		method: http.MethodGet,
		path:   fmt.Sprintf("%s?index=%d", api.PathAdminHash, index),
		answer: func() api.Response { return new(api.HashResponse) },
	}, "hash")
	if err != nil {
		return nil, err
	}
	return answer.(*api.HashResponse), nil
}
