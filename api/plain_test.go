package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

const plainPut = `{"Key":"key-000000000042","Value":"%s","ClientID":"s-ABCDEFGHIJKLMNOPQRSTUVWXYZ","RequestID":1234567,"AckedThrough":1234000}`

// What clients send is read by hand, or it would be slow, which no other test sees;
// what is not plain is not.
func TestPlain(t *testing.T) {
	for body, r := range map[string]Request{
		`{"Key":"k"}`: &GetRequest{},
		`{"Key":"k","Consistency":"lease","ClientID":"c","RequestID":1}`:    &GetRequest{},
		fmt.Sprintf(plainPut, "ünïcode"):                                    &PutRequest{},
		` { "Key" : "k" , "Value" : "" ,` + "\n\t\r" + `"IfVersion" : 0 } `: &PutRequest{},
		`{"Key":"k","Value":"v","ClientID":"c","RequestID":1}`:              &AppendRequest{},
		`{"Key":"k","CompareValue":"v","Value":"w"}`:                        &CASRequest{},
		`{"Key":"k","IfVersion":18446744073709551}`:                         &DeleteRequest{},

		`{"Operations":[{"Put":{"Key":"k","Value":"v"}},{"Get":{"Key":"k"}},{"Delete":{"Key":"k"}}]}`: &BatchRequest{},
	} {
		require.True(t, decodePlain([]byte(body), r), body)
	}
	for _, body := range []string{
		``, `{`, `{}`, `{"Key"`, `{"Key":"k"`, `{"Key":"k"}}`, `{"Key":"k"},`, `{"Key":"k",}`, `{"Key":"k" "Value":"v"}`, `["Key"]`,
		`{"Key":"k"}`, `{"Key":"k","Value":"v","Value":"v"}`, `{"key":"k","Value":"v"}`, `{"Key":"k","Value":"v","Other":"v"}`,
		`{"Key":"k","Value":"\u0041"}`, `{"Key":"k","Value":"` + "\x01" + `"}`, `{"Key":"k","Value":"` + "\xff" + `"}`, `{"Key":"k","Value":7}`, `{"Key":"k","Value":null}`,
		`{"Key":"k","Value":"v","IfVersion":01}`, `{"Key":"k","Value":"v","IfVersion":-1}`, `{"Key":"k","Value":"v","IfVersion":1.0}`,
		`{"Key":"k","Value":"v","IfVersion":18446744073709551616}`, `{"Key":"k","Value":"v","IfVersion":}`,
		`{"Key":"k","Value":"v","ClientID":""}`, `{"Key":"k","Value":"v","ClientID":7,"RequestID":1}`, `{"Key":"k","Value":"v","ClientID":"c","RequestID":0}`,
		`{"Key":"k","Value":"v","CompareValue":"v"}`, `{"Key":"k","Value":"v","Encoding":"base64"}`,
	} {
		var r PutRequest
		require.False(t, decodePlain([]byte(body), &r), body)
		require.Zero(t, r, body)
	}
	for _, body := range []string{
		`{"Operations":[]}`, `{"Operations":[{}]}`, `{"Operations":[{"Scan":{"Key":"k"}}]}`, `{"Operations":[{"Put":{"Key":"k"}}]}`,
		`{"Operations":[{"Get":{"Key":"k"}},]}`, `{"Operations":[{"Get":{"Key":"k"},"Get":{"Key":"k"}}]}`, `{"Operations":[{"Get":{"Key":"k"}}]`, `{"operations":[{"Get":{"Key":"k"}}]}`,
	} {
		var r BatchRequest
		require.False(t, decodePlain([]byte(body), &r), body)
		require.Zero(t, r, body)
	}
}

// Eight bytes at a time say the same as one by one, wherever in the text it stands.
func TestIsPlain(t *testing.T) {
	for c := range 256 {
		want := c >= ' ' && c != '"' && c != '\\'
		for length := 1; length <= 17; length++ {
			for at := range length {
				for _, others := range []string{"a", " ", "\xff", "!", "#", "]"} {
					text := strings.Repeat(others, at) + string([]byte{byte(c)}) + strings.Repeat(others, length-at-1)
					if isPlain(text) != want {
						t.Fatalf("%q", text)
					}
				}
			}
		}
	}
}

// What is plain, the general way reads the same.
func FuzzPlain(f *testing.F) {
	f.Add(fmt.Sprintf(plainPut, "v"))
	f.Add(`{"Key":"k","Value":"v","IfVersion":0,"AckedThrough":3,"RequestID":7,"ClientID":"c"}`)
	f.Add(`{"Key":"k","CompareValue":"","Value":"w"}`)
	f.Add(`{"Key":"k","Consistency":"stale"}`)
	f.Add(`{"Operations":[{"Append":{"Key":"k","Value":"v"}},{"CAS":{"Key":"k","CompareValue":"","Value":"w"}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, fresh := range []func() Request{
			func() Request { return &GetRequest{} },
			func() Request { return &PutRequest{} },
			func() Request { return &AppendRequest{} },
			func() Request { return &CASRequest{} },
			func() Request { return &DeleteRequest{} },
			func() Request { return &BatchRequest{} },
		} {
			plain, general := fresh(), fresh()
			if decodePlain([]byte(body), plain) {
				require.NoError(t, decodeAny([]byte(body), general))
				require.Equal(t, general, plain)
			} else {
				require.Equal(t, general, plain, "it must still be fresh")
			}
		}
	})
}

// What is written by hand is what the general way writes, whatever the value.
func FuzzPlainAnswer(f *testing.F) {
	f.Add("v", true, uint64(7))
	f.Add("\"\\\x00\x7f\u2028<&>\xff", false, uint64(0))
	f.Fuzz(func(t *testing.T, value string, found bool, version uint64) {
		put := PutResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, KeyFound: found, PrevValue: value, Version: version}
		get := GetResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, KeyFound: found, Value: value, Version: version}
		batch := BatchResponse{RespStatus: Status(value), Outcome: OutcomeApplied}
		if data, err := Encode(&put); err == nil {
			batch.Results = append(batch.Results, data, data)
		}
		for _, r := range []Response{&put, (*AppendResponse)(&put), (*DeleteResponse)(&put), &get, &batch} {
			requireEncoding(t, r)
		}
	})
}

// What is read by hand, the general way reads the same.
func FuzzPlainResponse(f *testing.F) {
	f.Add(`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"v","Version":7}`)
	f.Add(`{"RespStatus":"OK","Outcome":"applied","KeyFound":false,"Value":"","Version":0}` + "\n")
	f.Add(`{"RespStatus":"OK","Outcome":"applied","Results":[{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"v","Version":7} , {"RespStatus": "OK","Outcome":"applied","KeyFound":true,"Value":"v","Version":7}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, fresh := range freshAnswers {
			plain, general := fresh(), fresh()
			if decodePlainAnswer([]byte(body), plain) {
				require.NoError(t, decodeAnyAnswer([]byte(body), general))
				require.Equal(t, general, plain)
			} else {
				require.Equal(t, general, plain, "it must still be fresh")
			}
		}
	})
}

var freshAnswers = []func() Response{
	func() Response { return &PutResponse{} },
	func() Response { return &AppendResponse{} },
	func() Response { return &DeleteResponse{} },
	func() Response { return &GetResponse{} },
	func() Response { return &CASResponse{} },
	func() Response { return &BatchResponse{} },
}

// What our servers answer, and our clients send, is read and written by hand, or it
// would be slow, which no other test sees; what is not plain is not.
func TestPlainForClients(t *testing.T) {
	put := PutResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, KeyFound: true, PrevValue: "ünïcode", Version: 1234567}
	get := GetResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, Value: "v"}
	batch := BatchResponse{RespStatus: StatusOK, Outcome: OutcomeApplied}
	for _, r := range []Response{&put, (*AppendResponse)(&put), (*DeleteResponse)(&put), &get, &batch} {
		data, err := Encode(r)
		require.NoError(t, err)
		batch.Results = append(batch.Results, data) // so the batch, which is the last, has some
		again := reflect.New(reflect.TypeOf(r).Elem()).Interface().(Response)
		require.True(t, decodePlainAnswer(append(data, '\n'), again), "%T", r)
		repeated, err := Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(data), string(repeated))
	}

	for _, body := range []string{
		``, `{}`, `{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"v"}`,
		`{"RespStatus":"OK","Outcome":"applied","KeyFound":null,"PrevValue":"v","Version":7}`,
		`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"\u0041","Version":7}`,
		`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"v","Version":7,"Duplicate":true}`,
		`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"v","Version":7}x`,
		`{"RespStatus":"OK","Outcome":"applied","Results":[]}`, `{"RespStatus":"OK","Outcome":"applied","Results":[{}]}`,
	} {
		for _, fresh := range freshAnswers {
			r := fresh()
			require.False(t, decodePlainAnswer([]byte(body), r), body)
			require.Equal(t, fresh(), r, body)
		}
	}

	version := uint64(0)
	for _, v := range []any{
		&GetRequest{Key: "k", Consistency: ConsistencyLease}, &PutRequest{Key: "k", Value: "ü", ClientID: "c", RequestID: 7, AckedThrough: &version},
		&AppendRequest{Key: "k", IfVersion: &version}, &DeleteRequest{Key: "k", ClientID: "c", RequestID: 7},
	} {
		_, ok := encodeRequest(v)
		require.True(t, ok, "%T", v)
	}
}

// What is written by hand of a request is what the general way writes.
func FuzzPlainRequest(f *testing.F) {
	f.Add("k", "v", "c", "", uint64(7), uint64(3), true)
	f.Add("k", "\"\\\x00\x7f\u2028<&>\xff", "", "base64", uint64(0), uint64(0), false)
	f.Fuzz(func(t *testing.T, key, value, text, encoding string, n, m uint64, with bool) {
		var pointer *uint64
		if with {
			pointer = &m
		}
		for _, v := range []any{
			&GetRequest{Key: key, Consistency: Consistency(value), Encoding: Encoding(encoding), ClientID: ClientID(text), RequestID: n},
			&PutRequest{Key: key, Value: value, ClientID: ClientID(text), RequestID: n, AckedThrough: pointer, IfVersion: pointer, Encoding: Encoding(encoding)},
			&AppendRequest{Key: key, Value: value, ClientID: ClientID(text), RequestID: n, AckedThrough: pointer, IfVersion: pointer, Encoding: Encoding(encoding)},
			&CASRequest{Key: key, CompareValue: text, Value: value, ExpectAbsent: with, RequestID: n},
			&DeleteRequest{Key: key, ClientID: ClientID(text), RequestID: n, AckedThrough: pointer, IfVersion: pointer, Encoding: Encoding(encoding)},
		} {
			requireEncoding(t, v)
		}
	})
}

// No field of a request or an answer gets lost, also none that is added one day.
func TestPlainLosesNothing(t *testing.T) {
	for _, fresh := range []func() any{
		func() any { return &PutResponse{} },
		func() any { return &AppendResponse{} },
		func() any { return &DeleteResponse{} },
		func() any { return &GetResponse{} },
		func() any { return &BatchResponse{Results: []jsontext.Value{jsontext.Value(`{}`)}} },
		func() any { return &GetRequest{} },
		func() any { return &PutRequest{} },
		func() any { return &AppendRequest{} },
		func() any { return &CASRequest{} },
		func() any { return &DeleteRequest{} },
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(fresh()).Elem()) {
			r := fresh()
			value := reflect.ValueOf(r).Elem().FieldByIndex(field.Index)
			switch value.Kind() {
			case reflect.String:
				value.SetString("x")
			case reflect.Bool:
				value.SetBool(true)
			case reflect.Uint64:
				value.SetUint(7)
			case reflect.Pointer:
				value.Set(reflect.New(value.Type().Elem()))
			}
			requireEncoding(t, r)
		}
	}
}

func requireEncoding(t *testing.T, r any) {
	want, wantErr := json.Marshal(r)
	got, err := Encode(r)
	if wantErr != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// plainBatch is a batch of 100 puts.
func plainBatch() []byte {
	put := `{"Put":` + fmt.Sprintf(plainPut, strings.Repeat("v", 100)) + `}`
	return []byte(`{"Operations":[` + strings.Repeat(put+",", 99) + put + `]}`)
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name  string
		body  []byte
		fresh func() Request
	}{
		{"put", fmt.Appendf(nil, plainPut, strings.Repeat("v", 100)), func() Request { return new(PutRequest) }},
		{"batch", plainBatch(), func() Request { return new(BatchRequest) }},
	} {
		for way, decode := range map[string]func([]byte, Request) error{"plain": Decode, "general": decodeAny} {
			b.Run(c.name+"/"+way, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := decode(c.body, c.fresh()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	put := &PutResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, KeyFound: true, PrevValue: strings.Repeat("v", 100), Version: 1234567}
	general := func(v any) ([]byte, error) { return json.Marshal(v) }
	for way, encode := range map[string]func(any) ([]byte, error){"plain": Encode, "general": general} {
		b.Run("put/"+way, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(put); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
