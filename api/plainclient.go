package api

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The client's side of plain.go: requests are written and answers are read by hand
// where they are plain. A client that sends a hundred writes in one batch spends most of
// its time on these.

// encodeRequest writes a plain request; ok is false for any other, and for what is
// no request.
func encodeRequest(v any) (b []byte, ok bool) {
	var f plainFields
	var encoding Encoding
	var acked, version *uint64
	switch r := v.(type) {
	case *GetRequest:
		f = plainFields{given: fieldKey, key: r.Key, clientID: string(r.ClientID), consistency: string(r.Consistency), requestID: r.RequestID}
		encoding = r.Encoding
	case *PutRequest:
		f = plainFields{given: fieldKey | fieldValue, key: r.Key, value: r.Value, clientID: string(r.ClientID), requestID: r.RequestID}
		encoding, acked, version = r.Encoding, r.AckedThrough, r.IfVersion
	case *AppendRequest:
		return encodeRequest((*PutRequest)(r))
	case *DeleteRequest:
		f = plainFields{given: fieldKey, key: r.Key, clientID: string(r.ClientID), requestID: r.RequestID}
		encoding, acked, version = r.Encoding, r.AckedThrough, r.IfVersion
	default:
		return nil, false
	}
	f.give(fieldClientID, f.clientID != "")
	f.give(fieldConsistency, f.consistency != "")
	f.give(fieldRequestID, f.requestID != 0)
	if acked != nil {
		f.give(fieldAckedThrough, true)
		f.ackedThrough = *acked
	}
	if version != nil {
		f.give(fieldIfVersion, true)
		f.version = *version
	}
	return f.encode(), encoding == EncodingText && f.isPlain()
}

func (f *plainFields) give(field plainField, given bool) {
	if given {
		f.given |= field
	}
}

func (f *plainFields) isPlain() bool {
	for _, text := range [...]string{f.key, f.value, f.clientID, f.consistency} {
		if !isPlain(text) || !utf8.ValidString(text) {
			return false
		}
	}
	return true
}

// encode writes the fields in the order that they have in the requests.
func (f *plainFields) encode() []byte {
	b := make([]byte, 0, 128+len(f.key)+len(f.value)+len(f.clientID)+len(f.consistency))
	text := func(field plainField, name, value string) {
		if f.given&field != 0 {
			b = append(b, name...)
			b = append(b, value...)
			b = append(b, '"')
		}
	}
	number := func(field plainField, name string, n uint64) {
		if f.given&field != 0 {
			b = append(b, name...)
			b = strconv.AppendUint(b, n, 10)
		}
	}
	text(fieldKey, `{"Key":"`, f.key)
	text(fieldValue, `,"Value":"`, f.value)
	text(fieldConsistency, `,"Consistency":"`, f.consistency)
	text(fieldClientID, `,"ClientID":"`, f.clientID)
	number(fieldRequestID, `,"RequestID":`, f.requestID)
	number(fieldAckedThrough, `,"AckedThrough":`, f.ackedThrough)
	number(fieldIfVersion, `,"IfVersion":`, f.version)
	return append(b, '}')
}

// decodePlainAnswer reads an answer such as encodePlain writes into r, which must be
// fresh. If it returns false, r is still fresh. The results of a batch share the memory
// of data.
func decodePlainAnswer(data []byte, r Response) bool {
	switch r.(type) {
	case *PutResponse, *AppendResponse, *DeleteResponse, *GetResponse, *BatchResponse:
	default:
		return false
	}
	p := plainReader{rest: string(data)}
	p.bad = !utf8.ValidString(p.rest)
	switch r := r.(type) {
	case *PutResponse:
		return p.putAnswer(r)
	case *AppendResponse:
		return p.putAnswer((*PutResponse)(r))
	case *DeleteResponse:
		return p.putAnswer((*PutResponse)(r))
	case *GetResponse:
		a := p.result()
		if !p.end() || a.name != "Value" {
			return false
		}
		r.RespStatus, r.Outcome, r.KeyFound, r.Value, r.Version = a.status, a.outcome, a.found, a.value, a.version
	case *BatchResponse:
		status, outcome := p.answerHead()
		results := p.results(data)
		if !p.end() {
			return false
		}
		r.RespStatus, r.Outcome, r.Results = status, outcome, results
	}
	return true
}

func (p *plainReader) putAnswer(r *PutResponse) bool {
	a := p.result()
	if !p.end() || a.name != "PrevValue" {
		return false
	}
	r.RespStatus, r.Outcome, r.KeyFound, r.PrevValue, r.Version = a.status, a.outcome, a.found, a.value, a.version
	return true
}

// literal passes over what must stand next.
func (p *plainReader) literal(text string) {
	rest, found := strings.CutPrefix(p.rest, text)
	p.rest, p.bad = rest, p.bad || !found
}

// answerHead reads what beginAnswer writes.
func (p *plainReader) answerHead() (Status, Outcome) {
	p.literal(`{"RespStatus":`)
	status := p.text()
	p.literal(`,"Outcome":`)
	return Status(status), Outcome(p.text())
}

// plainResult is what encodeResult writes.
type plainResult struct {
	status  Status
	outcome Outcome
	found   bool
	name    string // of the field that has the value
	value   string
	version uint64
}

func (p *plainReader) result() (r plainResult) {
	r.status, r.outcome = p.answerHead()
	p.literal(`,"KeyFound":`)
	if r.found = strings.HasPrefix(p.rest, "true"); r.found {
		p.literal("true")
	} else {
		p.literal("false")
	}
	p.literal(",")
	r.name = p.text()
	p.bad = p.bad || r.name != "PrevValue" && r.name != "Value"
	p.literal(":")
	r.value = p.text()
	p.literal(`,"Version":`)
	r.version = p.number()
	p.literal("}")
	return r
}

// results reads what encodeBatch writes behind the head. The reader is reading data.
func (p *plainReader) results(data []byte) (results []jsontext.Value) {
	p.literal(`,"Results":[`)
	for !p.bad {
		begin := len(data) - len(p.rest)
		p.result()
		end := len(data) - len(p.rest)
		results = append(results, data[begin:end:end])
		if p.has(']') {
			break
		}
		p.literal(",")
	}
	p.literal("}")
	return results
}
