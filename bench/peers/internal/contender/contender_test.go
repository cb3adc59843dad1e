package contender

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/bench/peers/internal/front"
	"raftkv/bench/peers/internal/load"
)

// What is written by hand must be what the servers read.
func TestRequestsOfRaftkv(t *testing.T) {
	id := identity{name: "s-ABC"}
	path, body := writeRaftkv(nil, id, load.Request{Op: load.Put, Key: 7, Value: "v", Number: 3})
	var put api.PutRequest
	require.NoError(t, api.Decode(body, &put))
	require.NoError(t, put.Validate(api.Limits{}))
	require.Equal(t, api.PathPut, path)
	require.Equal(t, api.PutRequest{Key: load.Key(7), Value: "v", ClientID: "s-ABC", RequestID: 3}, put)

	path, body = writeRaftkv(nil, id, load.Request{Op: load.Batch, Key: 7, Value: "v", Number: 2})
	var batch api.BatchRequest
	require.NoError(t, api.Decode(body, &batch))
	require.NoError(t, batch.Validate(api.Limits{}))
	require.Equal(t, api.PathBatch, path)
	require.Len(t, batch.Operations, load.BatchSize)
	for i, o := range batch.Operations {
		want := api.PutRequest{Key: load.Key(7 + i), Value: "v", ClientID: "s-ABC", RequestID: uint64(load.BatchSize + i + 1)}
		require.Equal(t, &want, o.Request)
	}

	path, body = writeRaftkv(nil, id, load.Request{Op: load.Get, Key: 7})
	var get api.GetRequest
	require.NoError(t, api.Decode(body, &get))
	require.Equal(t, api.PathGet, path)
	require.Equal(t, load.Key(7), get.Key)
}

func TestAnswersOfRaftkv(t *testing.T) {
	ok, busy := `{"RespStatus":"OK"}`, `{"RespStatus":"Busy"}`
	require.True(t, goodRaftkv(load.Put, []byte(ok)))
	require.False(t, goodRaftkv(load.Put, []byte(busy)))
	batch := func(results ...string) []byte {
		return []byte(`{"RespStatus":"OK","Results":[` + strings.Join(results, ",") + `]}`)
	}
	all := strings.Split(strings.Repeat(ok+" ", load.BatchSize), " ")[:load.BatchSize]
	require.True(t, goodRaftkv(load.Batch, batch(all...)))
	all[50] = busy
	require.False(t, goodRaftkv(load.Batch, batch(all...)), "one put was refused")
	require.False(t, goodRaftkv(load.Find, []byte(`{"RespStatus":"OK","KeyFound":false}`)))
}

func TestRequestsOfTheFront(t *testing.T) {
	id := identity{number: 9}
	_, body := writeFront(nil, id, load.Request{Op: load.Put, Key: 7, Value: "v", Number: 3})
	var put front.Put
	require.NoError(t, json.Unmarshal(body, &put))
	require.Equal(t, front.Put{Key: load.Key(7), Value: "v", ClientID: 9, RequestID: 3}, put)
	_, body = writeFront(nil, id, load.Request{Op: load.Batch, Key: 7, Value: "v", Number: 2})
	var batch []front.Put
	require.NoError(t, json.Unmarshal(body, &batch))
	require.Len(t, batch, load.BatchSize)
	require.Equal(t, front.Put{Key: load.Key(106), Value: "v", ClientID: 9, RequestID: 200}, batch[99])
	_, body = writeFront(nil, id, load.Request{Op: load.Get, Key: 7})
	var get front.Get
	require.NoError(t, json.Unmarshal(body, &get))
	require.Equal(t, load.Key(7), get.Key)
}
