package kvservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"raftkv/part4-kvservice/api"
)

// maxBodyBytes is the size of the largest request.
const maxBodyBytes = 1 << 20

// ServeHTTP starts to apply what is committed and to answer the clients that
// come to listener, which it takes over. It returns at once. Call it once.
func (kvs *KVService) ServeHTTP(listener net.Listener) {
	kvs.srv = &http.Server{
		Handler:           kvs.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return kvs.ctx },
	}
	kvs.wg.Go(kvs.runUpdater)
	kvs.wg.Go(func() { kvs.srv.Serve(listener) }) // until Shutdown
}

// Shutdown stops the service and returns when nothing of it runs any more.
// Requests under way are answered with StatusFailedCommit, or not at all if they
// take longer than a second. It does not stop the raft.Server.
func (kvs *KVService) Shutdown() {
	kvs.quit()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if kvs.srv.Shutdown(ctx) != nil {
		kvs.srv.Close()
	}
	kvs.wg.Wait()
}

func (kvs *KVService) handler() http.Handler {
	mux := http.NewServeMux()
	for route, handle := range map[string]http.HandlerFunc{
		"get": kvs.handleGet, "put": kvs.handlePut, "append": kvs.handleAppend, "cas": kvs.handleCAS,
	} {
		mux.HandleFunc("POST /"+route, handle)
		mux.HandleFunc("POST /"+route+"/{$}", handle)
	}
	return mux
}

func (kvs *KVService) handleGet(w http.ResponseWriter, req *http.Request) {
	var gr api.GetRequest
	if !readRequestJSON(w, req, &gr) {
		return
	}
	result, err := kvs.execute(req.Context(), Command{Kind: CommandGet, Key: gr.Key})
	sendHTTPResponse(w, api.GetResponse{Head: head(err), KeyFound: result.ResultFound, Value: result.ResultValue})
}

func (kvs *KVService) handlePut(w http.ResponseWriter, req *http.Request) {
	var pr api.PutRequest
	if !readRequestJSON(w, req, &pr) {
		return
	}
	result, err := kvs.execute(req.Context(), Command{Kind: CommandPut, Key: pr.Key, Value: pr.Value})
	sendHTTPResponse(w, api.PutResponse{Head: head(err), KeyFound: result.ResultFound, PrevValue: result.ResultValue})
}

func (kvs *KVService) handleAppend(w http.ResponseWriter, req *http.Request) {
	var ar api.AppendRequest
	if !readRequestJSON(w, req, &ar) {
		return
	}
	result, err := kvs.execute(req.Context(), Command{Kind: CommandAppend, Key: ar.Key, Value: ar.Value})
	sendHTTPResponse(w, api.AppendResponse{Head: head(err), KeyFound: result.ResultFound, PrevValue: result.ResultValue})
}

func (kvs *KVService) handleCAS(w http.ResponseWriter, req *http.Request) {
	var cr api.CASRequest
	if !readRequestJSON(w, req, &cr) {
		return
	}
	result, err := kvs.execute(req.Context(), Command{Kind: CommandCAS, Key: cr.Key, Value: cr.Value, CompareValue: cr.CompareValue})
	sendHTTPResponse(w, api.CASResponse{Head: head(err), KeyFound: result.ResultFound, PrevValue: result.ResultValue})
}

// head puts what execute returned into the words of the API.
func head(err error) api.Head {
	switch {
	case err == nil:
		return api.Head{RespStatus: api.StatusOK}
	case errors.Is(err, errFailedCommit):
		return api.Head{RespStatus: api.StatusFailedCommit, Error: err.Error()}
	default: // Submit has refused the command
		return api.Head{RespStatus: api.StatusNotLeader, Error: err.Error()}
	}
}

// readRequestJSON reads the body of a request into target. If that fails, it
// answers the client and returns false.
func readRequestJSON(w http.ResponseWriter, req *http.Request, target any) bool {
	err := func() error {
		if media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || media != "application/json" {
			return errors.New("expected Content-Type application/json")
		}
		decoder := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBodyBytes))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(target); err != nil {
			return err
		}
		if _, err := decoder.Token(); err != io.EOF {
			return errors.New("something follows the request")
		}
		return nil
	}()
	if err != nil {
		http.Error(w, fmt.Sprintf("bad request, nothing was done: %v", err), http.StatusBadRequest)
	}
	return err == nil
}

func sendHTTPResponse(w http.ResponseWriter, response any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(response) // an error means that the client has gone
}
