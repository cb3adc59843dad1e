// Package front is the face of the contenders that are libraries: JSON over
// net/http, with encoding/json, as most programs on them are written.
//
//	POST /put     a Put                    Answer
//	POST /batch   a list of Puts           Answer, when all of them are carried out
//	POST /get     {"key"}                  Answer with value
//	GET  /leader                           200 if this node leads, else 421
//	GET  /metrics                          go_memstats_heap_inuse_bytes, as Prometheus writes it
//
// A node that does not lead answers 421, and one that fails 503.
package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"raftkv/bench/peers/internal/kv"
)

// Put is one request of /put.
type Put struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	ClientID  uint64 `json:"client_id"`
	RequestID uint64 `json:"request_id"`
}

// Get is the request of /get.
type Get struct {
	Key string `json:"key"`
}

// Answer is what a request that succeeded is told.
type Answer struct {
	OK        bool   `json:"ok"`
	Found     bool   `json:"found"` // the key was there
	Duplicate bool   `json:"duplicate,omitempty"`
	Value     string `json:"value,omitempty"`
}

// ErrNotLeader is what a Store returns that does not lead.
var ErrNotLeader = errors.New("this node does not lead")

// Store is what stands behind the front.
type Store interface {
	// Apply puts an entry of package kv into the log. It returns when the entry is
	// durable on a majority and applied here.
	Apply(entry []byte) (kv.Result, error)

	// Get is a linearizable read.
	Get(key string) (value string, found bool, err error)

	Leads() bool
}

// Serve answers at addr until that fails.
func Serve(addr string, s Store) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /put", func(w http.ResponseWriter, r *http.Request) {
		var p Put
		if !decode(w, r, &p) {
			return
		}
		result, err := s.Apply(p.append(nil))
		answer(w, Answer{OK: true, Found: result.Found, Duplicate: result.Duplicate}, err)
	})
	mux.HandleFunc("POST /batch", func(w http.ResponseWriter, r *http.Request) {
		var puts []Put
		if !decode(w, r, &puts) {
			return
		}
		var entry []byte
		for _, p := range puts {
			entry = p.append(entry)
		}
		_, err := s.Apply(entry)
		answer(w, Answer{OK: true}, err)
	})
	mux.HandleFunc("POST /get", func(w http.ResponseWriter, r *http.Request) {
		var g Get
		if !decode(w, r, &g) {
			return
		}
		value, found, err := s.Get(g.Key)
		answer(w, Answer{OK: true, Found: found, Value: value}, err)
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Leads() {
			answer(w, Answer{}, ErrNotLeader)
		}
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintln(w, "go_memstats_heap_inuse_bytes", m.HeapInuse)
	})
	return http.ListenAndServe(addr, mux)
}

func (p Put) append(entry []byte) []byte {
	return kv.AppendPut(entry, p.ClientID, p.RequestID, p.Key, p.Value)
}

// decode reads the body into v, or answers 400 and returns false.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	err := json.NewDecoder(r.Body).Decode(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func answer(w http.ResponseWriter, a Answer, err error) {
	switch {
	case errors.Is(err, ErrNotLeader):
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(a)
	}
}
