package api

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// What a careless reader would accept or change in meaning (pitfall UX-02).
func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ name, body, text string }{
		{"nothing", ``, "must be a JSON object"},
		{"null", `null`, "must be a JSON object"},
		{"an array", `["k"]`, "must be a JSON object"},
		{"half an object", `{"Key":"k"`, "unexpected EOF"},
		{"a second value", `{"Key":"k","Value":"v"}{}`, "after top-level value"},
		{"garbage behind", `{"Key":"k","Value":"v"} x`, "after top-level value"},
		{"no key", `{"Value":"v"}`, "Key is missing"},
		{"no value", `{"Key":"k"}`, "Value is missing"},
		{"null for a value", `{"Key":"k","Value":null}`, "Value must not be null"},
		{"a doubled field", `{"Key":"k","Key":"l","Value":"v"}`, "duplicate"},
		{"an unknown field", `{"Key":"k","Value":"v","TTL":1}`, `no field "TTL" here`},
		{"another case", `{"key":"k","Value":"v"}`, `no field "key" here`},
		{"a number for text", `{"Key":1,"Value":"v"}`, "Key has a wrong type"},
		{"invalid UTF-8", "{\"Key\":\"\xff\",\"Value\":\"v\"}", "invalid UTF-8"},
		{"a lone surrogate", `{"Key":"\ud800","Value":"v"}`, "surrogate"},
		{"ClientID of a wrong type", `{"Key":"k","Value":"v","ClientID":true,"RequestID":1}`, "string or an integer"},
		{"ClientID with a fraction", `{"Key":"k","Value":"v","ClientID":1.5,"RequestID":1}`, "string or an integer"},
		{"ClientID with an exponent", `{"Key":"k","Value":"v","ClientID":1e3,"RequestID":1}`, "string or an integer"},
		{"ClientID -0", `{"Key":"k","Value":"v","ClientID":-0,"RequestID":1}`, "string or an integer"},
		{"an empty ClientID", `{"Key":"k","Value":"v","ClientID":""}`, "ClientID must not be empty"},
		{"RequestID 0", `{"Key":"k","Value":"v","RequestID":0}`, "RequestID must be 1 or more"},
		{"a negative RequestID", `{"Key":"k","Value":"v","ClientID":"c","RequestID":-1}`, "RequestID has a wrong type or is out of range"},
		{"a RequestID beyond 64 bits", `{"Key":"k","Value":"v","ClientID":"c","RequestID":18446744073709551616}`, "RequestID has a wrong type or is out of range"},
		{"RequestID as text", `{"Key":"k","Value":"v","ClientID":"c","RequestID":"1"}`, "RequestID has a wrong type or is out of range"},
		{"RequestID with a fraction", `{"Key":"k","Value":"v","ClientID":"c","RequestID":1.5}`, "RequestID has a wrong type or is out of range"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Decode([]byte(tc.body), &PutRequest{})
			var refused *RequestError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, StatusBadRequest, refused.Status)
			require.Contains(t, refused.Text, tc.text)
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	acked := func(n uint64) *uint64 { return &n }
	put := func(change func(*PutRequest)) *PutRequest {
		r := &PutRequest{Key: "k", Value: "v"}
		change(r)
		return r
	}
	for _, tc := range []struct {
		name   string
		r      Request
		status Status
	}{
		{"an empty key", &GetRequest{}, StatusBadRequest},
		{"an empty key to write", &DeleteRequest{}, StatusBadRequest},
		{"a level that does not exist", &GetRequest{Key: "k", Consistency: "Lease"}, StatusBadRequest},
		{"a long key", &GetRequest{Key: strings.Repeat("k", 1025)}, StatusTooLarge},
		{"a long value", &AppendRequest{Key: "k", Value: strings.Repeat("v", 1<<20+1)}, StatusTooLarge},
		{"a long compare value", &CASRequest{Key: "k", CompareValue: strings.Repeat("v", 1<<20+1)}, StatusTooLarge},
		{"ClientID alone", put(func(r *PutRequest) { r.ClientID = "c" }), StatusBadRequest},
		{"RequestID alone", put(func(r *PutRequest) { r.RequestID = 1 }), StatusBadRequest},
		{"AckedThrough alone", put(func(r *PutRequest) { r.AckedThrough = acked(0) }), StatusBadRequest},
		{"a long ClientID", put(func(r *PutRequest) { r.ClientID, r.RequestID = ClientID(strings.Repeat("c", 65)), 1 }), StatusBadRequest},
		{"a CAS with two expectations", &CASRequest{Key: "k", CompareValue: "v", ExpectAbsent: true}, StatusBadRequest},
		{"an encoding that does not exist", &DeleteRequest{Key: "k", Encoding: "Base64"}, StatusBadRequest},
		{"text that is no base64", &PutRequest{Key: "k", Value: "a", Encoding: EncodingBase64}, StatusBadRequest},
		{"base64 with a line break", &PutRequest{Key: "k", Value: "AP8=\n", Encoding: EncodingBase64}, StatusBadRequest},
		{"base64 with bits left over", &PutRequest{Key: "k", Value: "AP9=", Encoding: EncodingBase64}, StatusBadRequest},
		{"a long value in base64", &CASRequest{Key: "k", CompareValue: base64OfZeros(1<<20 + 1), Encoding: EncodingBase64}, StatusTooLarge},
		{"a scan without end", &ScanRequest{Limit: 1001}, StatusBadRequest},
		{"a scan of less than nothing", &ScanRequest{Limit: -1}, StatusBadRequest},
		{"a scan through the log", &ScanRequest{Consistency: ConsistencyLog}, StatusBadRequest},
		{"a long prefix", &ScanRequest{Prefix: strings.Repeat("k", 1025)}, StatusTooLarge},
		{"a scan in no encoding", &ScanRequest{Encoding: "hex"}, StatusBadRequest},
		{"a session without name to close", &SessionCloseRequest{}, StatusBadRequest},
		{"a session to close with a long name", &SessionCloseRequest{ClientID: ClientID(strings.Repeat("c", 65))}, StatusBadRequest},
		{"AckedThrough = RequestID", put(func(r *PutRequest) { r.ClientID, r.RequestID, r.AckedThrough = "c", 7, acked(7) }), StatusBadRequest},
		{"AckedThrough > RequestID", put(func(r *PutRequest) { r.ClientID, r.RequestID, r.AckedThrough = "c", 7, acked(8) }), StatusBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var refused *RequestError
			require.ErrorAs(t, tc.r.Validate(Limits{}), &refused)
			require.Equal(t, tc.status, refused.Status)
			require.Equal(t, OutcomeNotApplied, refused.Response().Outcome)
		})
	}
}

func base64OfZeros(n int) string {
	text, _ := EncodeValue(strings.Repeat("\x00", n), EncodingBase64)
	return text
}

// What of a compare-and-set must be there depends on what it expects.
func TestExpectAbsentStandsForCompareValue(t *testing.T) {
	var r CASRequest
	require.NoError(t, Decode([]byte(`{"Key":"k","Value":"v","ExpectAbsent":true}`), &r))
	require.ErrorContains(t, Decode([]byte(`{"Key":"k","Value":"v","ExpectAbsent":false}`), &CASRequest{}), "CompareValue is missing")
}

// Any value comes through, as text if it is text.
func TestValuesInAnswers(t *testing.T) {
	for _, value := range []string{"", "text", "é\x00", "\xff", "half \xc3"} {
		for _, e := range []Encoding{EncodingText, EncodingBase64} {
			for _, r := range []Response{
				&GetResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, Value: value},
				&PutResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, PrevValue: value},
				&AppendResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, PrevValue: value},
				&DeleteResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, PrevValue: value},
				&CASResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, PrevValue: value},
			} {
				want := reflect.ValueOf(r).Elem().Interface()
				EncodeValues(r, e)
				data, err := Encode(r)
				require.NoError(t, err)
				require.Equal(t, e == EncodingBase64 || !utf8.ValidString(value), strings.Contains(string(data), `"Encoding":"base64"`))
				got := reflect.New(reflect.TypeOf(want)).Interface().(Response)
				require.NoError(t, DecodeResponse(data, got))
				require.Equal(t, want, reflect.ValueOf(got).Elem().Interface())
			}
		}
	}
	require.Error(t, DecodeResponse([]byte(`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"Value":"!","Encoding":"base64"}`), &GetResponse{}))
	require.Error(t, DecodeResponse([]byte(`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"Value":"v","Encoding":"later"}`), &GetResponse{}))
}

func TestSessionToCloseIsNamed(t *testing.T) {
	require.ErrorContains(t, Decode([]byte(`{}`), &SessionCloseRequest{}), "ClientID is missing")
	require.ErrorContains(t, Decode([]byte(`{"ClientID":""}`), &SessionCloseRequest{}), "must not be empty")
	require.ErrorContains(t, Decode([]byte("{\"ClientID\":\"\xffk\"}"), &SessionCloseRequest{}), "invalid UTF-8", "the id of an Idempotency-Key")
	require.NoError(t, Decode([]byte(`{"ClientID":7}`), &SessionCloseRequest{}))
}

func TestScanNamesItsPrefixAndNoLimitOfNothing(t *testing.T) {
	require.ErrorContains(t, Decode([]byte(`{}`), &ScanRequest{}), "Prefix is missing")
	require.ErrorContains(t, Decode([]byte(`{"Prefix":"","Limit":0}`), &ScanRequest{}), "Limit must be 1 or more")
}

// Inside a batch the same is refused as outside, and the text says where.
func TestBatchRefuses(t *testing.T) {
	put := `{"Put":{"Key":"k","Value":"v"}}`
	for _, tc := range []struct{ body, text string }{
		{`{}`, "Operations is missing"},
		{`{"Operations":[]}`, "from 1 to 1024 operations, not 0"},
		{`{"Operations":[` + strings.Repeat(put+",", 1024) + put + `]}`, "not 1025"},
		{`{"Operations":[{}]}`, "operation 0: an operation is an object with one field"},
		{`{"Operations":[null]}`, "operation 0: an operation is an object with one field"},
		{`{"Operations":[` + put + `,{"Get":{"Key":"k"},"Put":{"Key":"k","Value":"v"}}]}`, "operation 1: an operation is an object with one field"},
		{`{"Operations":[{"Put":{"Key":"k","Value":"v"},"Put":{"Key":"k","Value":"v"}}]}`, "duplicate"},
		{`{"Operations":[{"put":{"Key":"k","Value":"v"}}]}`, `there is no operation "put"`},
		{`{"Operations":[{"Session":{}}]}`, `there is no operation "Session"`},
		{`{"Operations":[` + put + `,{"Put":{"Key":"k"}}]}`, "operation 1: Value is missing"},
		{`{"Operations":[{"Put":{"Key":"k","Value":"v","TTL":1}}]}`, `operation 0: there is no field "TTL" here`},
		{`{"Operations":[{"Put":null}]}`, "operation 0: the body must be a JSON object"},
		{`{"Operations":[{"Delete":{"Key":"k","ClientID":"c","RequestID":0}}]}`, "operation 0: RequestID must be 1 or more"},
		{`{"Operations":[` + put + `,{"Delete":{"Key":"k","RequestID":2}}]}`, "operation 1: RequestID or AckedThrough without ClientID"},
		{`{"Operations":[{"Get":{"Key":"k","Consistency":"stale"}}]}`, "operation 0: a Get of a batch"},
	} {
		refused := refusal(t, tc.body, new(BatchRequest))
		require.Equal(t, StatusBadRequest, refused.Status, tc.body)
		require.Contains(t, refused.Text, tc.text, tc.body)
	}
}

// refusal says why body is no request of r's kind: it cannot be read, or it makes
// no sense.
func refusal(t *testing.T, body string, r Request) *RequestError {
	t.Helper()
	err := Decode([]byte(body), r)
	if err == nil {
		err = r.Validate(Limits{})
	}
	var refused *RequestError
	require.ErrorAs(t, err, &refused, body)
	return refused
}

// What can be said of a change without knowing the configuration (pitfall MB-11).
func TestValidateRefusesChanges(t *testing.T) {
	for _, tc := range []struct{ body, text string }{
		{`{"Promote":[1]}`, "Expected is missing"},
		{`{"Expected":1}`, "no change is named"},
		{`{"Expected":1,"Add":[],"Remove":[]}`, "no change is named"},
		{`{"Expected":1,"Remove":[0]}`, "id 0 means nobody"},
		{`{"Expected":1,"Remove":[2,2]}`, "server 2 is named twice"},
		{`{"Expected":1,"Promote":[2],"Remove":[2]}`, "server 2 is named twice"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":"h:1"},{"ID":4,"Raft":"h:2"}]}`, "server 4 is named twice"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":"h:1"},{"ID":5,"Raft":"h:1"}]}`, "servers 4 and 5 have the same address h:1"},
		{`{"Expected":1,"Add":[{"ID":4}]}`, "server 4 has no address"},
		{`{"Expected":1,"Add":[null]}`, "id 0 means nobody"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":":9083"}]}`, "it has no host"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":"h:0"}]}`, "no number from 1 to 65535"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":"h:99999"}]}`, "no number from 1 to 65535"},
		{`{"Expected":1,"Add":[{"ID":4,"Raft":"a,b:1"}]}`, "characters that no address has"},
		{`{"Expected":1,"Remove":2}`, "Remove has a wrong type"},
		{`{"Expected":-1,"Remove":[2]}`, "Expected has a wrong type"},
	} {
		refused := refusal(t, tc.body, new(MembersRequest))
		require.Equal(t, StatusBadRequest, refused.Status, tc.body)
		require.Contains(t, refused.Text, tc.text, tc.body)
	}
}

// At the limit is inside, and an empty value is a value.
func TestAccepted(t *testing.T) {
	for _, r := range []Request{
		&SessionRequest{},
		&GetRequest{Key: strings.Repeat("k", 1024)},
		&PutRequest{Key: "k", Value: strings.Repeat("v", 1<<20)},
		&PutRequest{Key: "k"},
		&PutRequest{Key: "k", Value: base64OfZeros(1 << 20), Encoding: EncodingBase64, IfVersion: new(uint64(0))},
		&CASRequest{Key: "k", ExpectAbsent: true},
		&SessionCloseRequest{ClientID: "c"},
		&ScanRequest{},
		&ScanRequest{Prefix: "a", After: "b", Limit: 1000, Consistency: ConsistencyStale, Encoding: EncodingBase64},
		&GetRequest{Key: "k", Consistency: ConsistencyStale},
		&TransferRequest{},
		&MembersRequest{Add: []NewMember{{4, "[::1]:9083"}, {5, "h:9083"}}, Promote: []uint64{3}, Remove: []uint64{1, 2}},
		&CASRequest{Key: "k"},
		&DeleteRequest{Key: "k", ClientID: ClientID(strings.Repeat("c", 64)), RequestID: 1},
		&AppendRequest{Key: "k", ClientID: "c", RequestID: 7, AckedThrough: new(uint64(6))},
		&AppendRequest{Key: "k", ClientID: "c", RequestID: 7, AckedThrough: new(uint64(0))},
	} {
		require.NoError(t, r.Validate(Limits{}))
	}
	require.Error(t, (&GetRequest{Key: "long"}).Validate(Limits{KeyBytes: 3}), "a limit of the server's own")
}

// The posts' clients number themselves, and send an identity with reads too.
func TestClientIDFromANumber(t *testing.T) {
	for body, want := range map[string]ClientID{
		`{"Key":"k","ClientID":"c","RequestID":1}`:                   "c",
		`{"Key":"k","ClientID":7,"RequestID":1}`:                     "7",
		`{"Key":"k","ClientID":-7,"RequestID":1}`:                    "-7",
		`{"Key":"k","ClientID":9007199254740993,"RequestID":1}`:      "9007199254740993",
		`{"Key":"k","ClientID":123456789012345678901,"RequestID":1}`: "123456789012345678901",
	} {
		var r DeleteRequest
		require.NoError(t, Decode([]byte(body), &r))
		require.Equal(t, want, r.ClientID)
		encoded, err := Encode(&r)
		require.NoError(t, err)
		require.Contains(t, string(encoded), `"ClientID":"`+string(want)+`"`)
	}
	for _, body := range []string{`{"Key":"k","ClientID":0,"RequestID":0}`, `{"Key":"k","ClientID":""}`, `{"Key":"k"}`} {
		var r GetRequest
		require.NoError(t, Decode([]byte(body), &r))
		require.NoError(t, r.Validate(Limits{}), "the identity of a read is ignored")
	}
}

// AckedThrough 0 and no AckedThrough say different things: a client with many
// calls in flight has acknowledged nothing yet, a simple client all before.
func TestAckedThroughAbsentIsNotZero(t *testing.T) {
	var r PutRequest
	require.NoError(t, Decode([]byte(`{"Key":"k","Value":"","ClientID":"c","RequestID":5,"AckedThrough":0}`), &r))
	require.EqualValues(t, 0, Acked(r.RequestID, r.AckedThrough))
	r = PutRequest{}
	require.NoError(t, Decode([]byte(`{"Key":"k","Value":"","ClientID":"c","RequestID":5}`), &r))
	require.EqualValues(t, 4, Acked(r.RequestID, r.AckedThrough))
	require.EqualValues(t, 0, Acked(0, nil), "a write without identity")
}

func TestEncodeRefusesInvalidUTF8(t *testing.T) {
	_, err := Encode(&PutRequest{Key: "\xff", Value: "v"})
	require.Error(t, err, "U+FFFD in its place would be another key (pitfall UX-01)")
}

// Every status has a row, and the promise that a row makes is kept: "not
// applied" never comes with a code that invites a client to think otherwise.
func TestMeanings(t *testing.T) {
	for s, m := range meanings {
		require.True(t, s.Known())
		require.Equal(t, m.outcome, s.Outcome())
		require.Equal(t, m.http, HTTPStatus(s))
		require.Equal(t, m.exit, ExitCode(Refuse(s, "")))
		switch m.exit {
		case ExitRefused, ExitUnavailable:
			require.Equal(t, OutcomeNotApplied, m.outcome, "%s", s)
		case ExitUnknown:
			require.Equal(t, OutcomeUnknown, m.outcome, "%s", s)
		}
	}
	require.False(t, Status("Gone").Known())
	require.Equal(t, OutcomeUnknown, Status("Gone").Outcome())
	require.Equal(t, 500, HTTPStatus("Gone"))
	require.Equal(t, ExitUnknown, ExitCode(Refuse("Gone", "")))

	require.Equal(t, ExitAbsent, ExitCode(&GetResponse{RespStatus: StatusOK}))
	require.Equal(t, ExitOK, ExitCode(&GetResponse{RespStatus: StatusOK, KeyFound: true}))
	require.Equal(t, ExitNotSwapped, ExitCode(&CASResponse{RespStatus: StatusOK}))
	require.Equal(t, ExitOK, ExitCode(&CASResponse{RespStatus: StatusOK, Swapped: true}))
	require.Equal(t, ExitUnknown, ExitCode(&CASResponse{RespStatus: StatusTimeout}))
	require.Equal(t, ExitOK, ExitCode(&DeleteResponse{RespStatus: StatusOK}), "deleting an absent key is no failure")
}

func TestDecodeResponse(t *testing.T) {
	var r PutResponse
	require.NoError(t, DecodeResponse([]byte(`{"RespStatus":"OK","Outcome":"applied","KeyFound":true,"PrevValue":"a","Version":3,"Later":[1]}`), &r))
	require.Equal(t, PutResponse{RespStatus: StatusOK, Outcome: OutcomeApplied, KeyFound: true, PrevValue: "a", Version: 3}, r)

	// None of these may pass for a success (pitfall UX-04).
	for _, body := range []string{
		``, `{}`, `null`, `<html>`, `{"RespStatus":"OK"}`, `{"RespStatus":"Great","Outcome":"applied"}`,
		`{"RespStatus":"OK","Outcome":"done"}`, `{"RespStatus":"OK","Outcome":"applied"`, `{"RespStatus":"OK","Outcome":"applied"} {}`,
		`{"RespStatus":"OK","Outcome":"applied","KeyFound":null}`,
	} {
		require.Error(t, DecodeResponse([]byte(body), &PutResponse{}), body)
	}
}

func TestResponsesShareTheirHead(t *testing.T) {
	want := ErrorResponse{RespStatus: StatusNotLeader, Outcome: OutcomeNotApplied, Leader: 2, LeaderHTTP: "localhost:8081", Error: "not the leader"}
	data, err := Encode(&want)
	require.NoError(t, err)
	for _, r := range []Response{
		&ErrorResponse{}, &SessionResponse{}, &PutResponse{}, &AppendResponse{}, &DeleteResponse{}, &CASResponse{}, &GetResponse{}, &ScanResponse{}, &BatchResponse{}, &StatusResponse{},
		&MembersResponse{}, &SnapshotResponse{}, &TransferResponse{},
	} {
		require.NoError(t, DecodeResponse(data, r))
		require.Equal(t, want, r.Head())
	}
}

// What is accepted can be written and read again, and says the same.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{}`,
		`{"Key":"k"}`,
		`{"Key":"k","Value":""}`,
		`{"Key":"k","Value":"v","ClientID":"s-ABCDEFGHIJKLMNOPQRSTUVWXYZ","RequestID":7,"AckedThrough":3}`,
		`{"Key":"ключ","CompareValue":"a","Value":"\u0000","ClientID":-12,"RequestID":1}`,
		`{"Key":"\ud83d\ude00","Value":"v"} `,
		`{"Key":"\ud800","Value":"v"}`,
		`{"Key":"k","Value":"v","Value":"w"}`,
		`{"Key":"k","Consistency":"lease"}`,
		`{"Key":"k","Value":"AP8=","Encoding":"base64","IfVersion":0}`,
		`{"Key":"k","Value":"v","ExpectAbsent":true}`,
		`{"Prefix":"","After":"k","Limit":7}`,
		`{"Operations":[{"Put":{"Key":"k","Value":"v","ClientID":7,"RequestID":1}},{"Get":{"Key":"k"}},{"CAS":{"Key":"k","ExpectAbsent":true,"Value":""}}]}`,
		`{"To":3}`,
		`{"Expected":7,"Add":[{"ID":4,"Raft":"localhost:9083"}],"Promote":[5],"Demote":[1],"Remove":[2]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fresh := range []func() Request{
			func() Request { return &SessionRequest{} },
			func() Request { return &GetRequest{} },
			func() Request { return &PutRequest{} },
			func() Request { return &AppendRequest{} },
			func() Request { return &CASRequest{} },
			func() Request { return &DeleteRequest{} },
			func() Request { return &SessionCloseRequest{} },
			func() Request { return &ScanRequest{} },
			func() Request { return &BatchRequest{} },
			func() Request { return &TransferRequest{} },
			func() Request { return &MembersRequest{} },
		} {
			r := fresh()
			err := Decode(data, r)
			if err == nil {
				err = r.Validate(Limits{})
			}
			if err != nil {
				var refused *RequestError
				if !errors.As(err, &refused) || HTTPStatus(refused.Status)/100 != 4 {
					t.Fatalf("%T refused with %v", r, err)
				}
				answer, err := Encode(refused.Response())
				require.NoError(t, err, "a refusal must reach the client")
				require.Less(t, len(answer), 2000)
				continue
			}
			encoded, err := Encode(r)
			require.NoError(t, err)
			again := fresh()
			require.NoError(t, Decode(encoded, again))
			require.Equal(t, r, again)
		}
	})
}
