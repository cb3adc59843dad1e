package api

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Nearly every request is an object of a few plain fields: text without escapes,
// and whole numbers. To read it by reflection, and once before to see which fields
// are there, was most of what a batch cost a server, and so was its answer
// (docs/performance.md). What is plain is therefore read and written by hand.
//
// Everything else is left to the general way, and so is whatever is wrong: only
// that finds the words for a refusal. What is read here, it would accept and read
// the same (FuzzPlain), and what is written here, it would write.

// decodePlain reads a plain request into r, which must be fresh. If it returns
// false, r is still fresh.
func decodePlain(data []byte, r Request) bool {
	p := plainReader{rest: string(data)}
	p.bad = !utf8.ValidString(p.rest)
	if batch, ok := r.(*BatchRequest); ok {
		operations := p.operations()
		if p.end() {
			batch.Operations = operations
		}
		return !p.bad
	}
	fields := p.fields()
	return p.end() && fields.fill(r)
}

// plainReader takes values from the front of rest. The texts that it returns share
// its memory. Once something is not plain, bad is set and stays so.
type plainReader struct {
	rest string
	bad  bool
}

// space passes over white space.
func (p *plainReader) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\n' || p.rest[0] == '\t' || p.rest[0] == '\r') {
		p.rest = p.rest[1:]
	}
}

// has reports whether the next character is c, and passes over it if so.
func (p *plainReader) has(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *plainReader) expect(c byte) { p.bad = !p.has(c) || p.bad }

// end reports whether all was plain and nothing is left.
func (p *plainReader) end() bool {
	p.space()
	p.bad = p.bad || p.rest != ""
	return !p.bad
}

func (p *plainReader) text() string {
	p.expect('"')
	end := strings.IndexByte(p.rest, '"')
	if p.bad || end < 0 || !isPlain(p.rest[:end]) {
		p.bad = true
		return ""
	}
	text := p.rest[:end]
	p.rest = p.rest[end+1:]
	return text
}

func (p *plainReader) number() (n uint64) {
	p.space()
	digits := 0
	for digits < len(p.rest) && '0' <= p.rest[digits] && p.rest[digits] <= '9' {
		n = 10*n + uint64(p.rest[digits]-'0')
		digits++
	}
	const most = 19 // so many digits always fit
	if digits == 0 || digits > most || digits > 1 && p.rest[0] == '0' {
		p.bad = true
	}
	p.rest = p.rest[digits:]
	return n
}

// plainFields are the fields that a plain request may have.
type plainFields struct {
	given plainField // the sum of those that were there

	key, value, compareValue         string
	clientID, consistency            string
	requestID, ackedThrough, version uint64
}

type plainField uint

const (
	fieldKey plainField = 1 << iota
	fieldValue
	fieldCompareValue
	fieldClientID
	fieldConsistency
	fieldRequestID
	fieldAckedThrough
	fieldIfVersion

	fieldsOfIdentity = fieldClientID | fieldRequestID | fieldAckedThrough
)

func (p *plainReader) fields() (f plainFields) {
	p.expect('{')
	for !p.bad {
		var field plainField
		name := p.text()
		p.expect(':')
		switch name {
		case "Key":
			field, f.key = fieldKey, p.text()
		case "Value":
			field, f.value = fieldValue, p.text()
		case "CompareValue":
			field, f.compareValue = fieldCompareValue, p.text()
		case "ClientID":
			field, f.clientID = fieldClientID, p.text()
			p.bad = p.bad || f.clientID == ""
		case "RequestID":
			field, f.requestID = fieldRequestID, p.number()
			p.bad = p.bad || f.requestID == 0
		case "AckedThrough":
			field, f.ackedThrough = fieldAckedThrough, p.number()
		case "IfVersion":
			field, f.version = fieldIfVersion, p.number()
		case "Consistency":
			field, f.consistency = fieldConsistency, p.text()
		}
		p.bad = p.bad || field == 0 || f.given&field != 0 // unknown or doubled
		f.given |= field
		if p.has('}') {
			return f
		}
		p.expect(',')
	}
	return f
}

// fill makes the request of its fields, if it can have these and lacks none.
func (f plainFields) fill(r Request) bool {
	switch r := r.(type) {
	case *GetRequest:
		if !f.are(fieldKey, fieldConsistency|fieldClientID|fieldRequestID) {
			return false
		}
		*r = GetRequest{Key: f.key, Consistency: Consistency(f.consistency), ClientID: ClientID(f.clientID), RequestID: f.requestID}
	case *PutRequest:
		if !f.are(fieldKey|fieldValue, fieldsOfIdentity|fieldIfVersion) {
			return false
		}
		*r = PutRequest{Key: f.key, Value: f.value, ClientID: ClientID(f.clientID), RequestID: f.requestID,
			AckedThrough: f.optional(fieldAckedThrough, f.ackedThrough), IfVersion: f.optional(fieldIfVersion, f.version)}
	case *AppendRequest:
		return f.fill((*PutRequest)(r))
	case *CASRequest:
		if !f.are(fieldKey|fieldCompareValue|fieldValue, fieldsOfIdentity) {
			return false
		}
		*r = CASRequest{Key: f.key, CompareValue: f.compareValue, Value: f.value, ClientID: ClientID(f.clientID), RequestID: f.requestID,
			AckedThrough: f.optional(fieldAckedThrough, f.ackedThrough)}
	case *DeleteRequest:
		if !f.are(fieldKey, fieldsOfIdentity|fieldIfVersion) {
			return false
		}
		*r = DeleteRequest{Key: f.key, ClientID: ClientID(f.clientID), RequestID: f.requestID,
			AckedThrough: f.optional(fieldAckedThrough, f.ackedThrough), IfVersion: f.optional(fieldIfVersion, f.version)}
	default:
		return false
	}
	return true
}

// are reports whether all that is required was given, and nothing but that and
// what may be there.
func (f plainFields) are(required, optional plainField) bool {
	return f.given&required == required && f.given&^(required|optional) == 0
}

func (f plainFields) optional(field plainField, n uint64) *uint64 {
	if f.given&field == 0 {
		return nil
	}
	return new(n) // not &n, which would take memory for the nil, too
}

// operations reads a BatchRequest.
func (p *plainReader) operations() (operations []BatchOperation) {
	p.expect('{')
	p.bad = p.text() != "Operations" || p.bad
	p.expect(':')
	p.expect('[')
	for !p.bad {
		p.expect('{')
		request := operationNamed(p.text())
		p.expect(':')
		fields := p.fields()
		p.bad = p.bad || !fields.fill(request)
		p.expect('}')
		operations = append(operations, BatchOperation{request})
		if p.has(']') {
			break
		}
		p.expect(',')
	}
	p.expect('}')
	return operations
}

// encodePlain writes a plain answer: one that was carried out, whose value needs
// no escapes. ok is false for any other.
func encodePlain(v any) (b []byte, ok bool) {
	switch r := v.(type) {
	case *PutResponse:
		return encodePut(*r)
	case *AppendResponse:
		return encodePut(PutResponse(*r))
	case *DeleteResponse:
		return encodePut(PutResponse(*r))
	case *GetResponse:
		if *r != (GetResponse{RespStatus: r.RespStatus, Outcome: r.Outcome, KeyFound: r.KeyFound, Value: r.Value, Version: r.Version}) {
			return nil, false
		}
		return encodeResult(r.RespStatus, r.Outcome, r.KeyFound, "Value", r.Value, r.Version)
	case *BatchResponse:
		return encodeBatch(r)
	}
	return nil, false
}

func encodePut(r PutResponse) ([]byte, bool) {
	if r != (PutResponse{RespStatus: r.RespStatus, Outcome: r.Outcome, KeyFound: r.KeyFound, PrevValue: r.PrevValue, Version: r.Version}) {
		return nil, false
	}
	return encodeResult(r.RespStatus, r.Outcome, r.KeyFound, "PrevValue", r.PrevValue, r.Version)
}

func encodeBatch(r *BatchResponse) ([]byte, bool) {
	if len(r.Results) == 0 || r.Leader != 0 || r.LeaderHTTP != "" || r.Error != "" {
		return nil, false
	}
	room := 0
	for _, result := range r.Results {
		room += len(result) + 1
	}
	b, ok := beginAnswer(r.RespStatus, r.Outcome, room)
	b = append(b, `,"Results":[`...)
	for i, result := range r.Results {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, result...)
	}
	return append(b, "]}"...), ok
}

// beginAnswer returns the fields with which all answers begin, with room for so
// many bytes and the names of the fields behind them.
func beginAnswer(status Status, outcome Outcome, room int) (b []byte, ok bool) {
	b = make([]byte, 0, 128+room)
	b = append(b, `{"RespStatus":"`...)
	b = append(b, status...)
	b = append(b, `","Outcome":"`...)
	b = append(b, outcome...)
	return append(b, '"'), isPlain(string(status)) && isPlain(string(outcome)) && utf8.ValidString(string(status)) && utf8.ValidString(string(outcome))
}

// encodeResult writes what the answers about one key have.
func encodeResult(status Status, outcome Outcome, found bool, name, value string, version uint64) ([]byte, bool) {
	b, ok := beginAnswer(status, outcome, len(value))
	b = append(b, `,"KeyFound":`...)
	b = strconv.AppendBool(b, found)
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":"`...)
	b = append(b, value...)
	b = append(b, `","Version":`...)
	b = strconv.AppendUint(b, version, 10)
	return append(b, '}'), ok && isPlain(value) && utf8.ValidString(value)
}

// isPlain reports whether text, if it is UTF-8, stands in JSON as it is.
func isPlain(text string) bool {
	for ; len(text) >= 8; text = text[8:] {
		eight := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		if hasBelow(eight, ' ') || hasBelow(eight^each*'"', 1) || hasBelow(eight^each*'\\', 1) {
			return false
		}
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

const each = 0x0101010101010101 // 1 in each of eight bytes

// hasBelow reports whether one of the eight bytes is less than least, which is 128 at
// most: such a byte has its high bit set once least is taken from it. It may borrow from
// its neighbour and make that one look the same, but then the answer is true anyway.
func hasBelow(eight, least uint64) bool {
	return (eight-each*least)&^eight&(each<<7) != 0
}
