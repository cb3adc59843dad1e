package api

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads a request. It takes one JSON object and nothing after it, with
// every required field, no unknown and no doubled one, names in the right case
// and text in valid UTF-8; anything else is a *RequestError with
// StatusBadRequest. A lenient reader would guess, and a wrong guess about an
// identity executes a write twice. Validate still has to judge the values.
func Decode(data []byte, r Request) error {
	if decodePlain(data, r) {
		return nil
	}
	return decodeAny(data, r)
}

// decodeAny reads every request, and says what is wrong with the others.
func decodeAny(data []byte, r Request) error {
	given, err := fieldNames(data)
	if err != nil {
		return badRequest("%s", explain(err))
	}
	if err := json.Unmarshal(data, r, json.RejectUnknownMembers(true)); err != nil {
		return badRequest("%s", explain(err))
	}
	for _, name := range r.required() {
		if !slices.Contains(given, name) {
			return badRequest("%s is missing", name)
		}
	}
	switch r := r.(type) {
	case *GetRequest:
		return nil
	case *ScanRequest:
		if r.Limit == 0 && slices.Contains(given, "Limit") {
			return badRequest("Limit must be 1 or more")
		}
		return nil
	}
	return checkGivenIdentity(given, r)
}

// explain puts a decoding error into words that are about the request and not
// about our structs, and cuts it short: it may quote what the client sent.
func explain(err error) string {
	text := strings.TrimPrefix(err.Error(), "jsontext: ")
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		field := semantic.JSONPointer.LastToken()
		nested, isNested := errors.AsType[*RequestError](err)
		switch {
		case isNested:
			text = fmt.Sprintf("operation %s: %s", field, nested.Text)
		case errors.Is(err, json.ErrUnknownName):
			text = fmt.Sprintf("there is no field %q here", field)
		case errors.Is(err, errClientIDType):
			text = errClientIDType.Error()
		default:
			text = fmt.Sprintf("%s has a wrong type or is out of range", field)
		}
	}
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// checkGivenIdentity refuses a ClientID "" or a RequestID 0 that was written
// down: in the structs both look as if the field were absent.
func checkGivenIdentity(given []string, r Request) error {
	id, number := identity(r)
	if slices.Contains(given, "ClientID") && id == "" {
		return badRequest("ClientID must not be empty")
	}
	if slices.Contains(given, "RequestID") && number == 0 {
		return badRequest("RequestID must be 1 or more")
	}
	return nil
}

func identity(r Request) (ClientID, uint64) {
	switch r := r.(type) {
	case *PutRequest:
		return r.ClientID, r.RequestID
	case *AppendRequest:
		return r.ClientID, r.RequestID
	case *CASRequest:
		return r.ClientID, r.RequestID
	case *DeleteRequest:
		return r.ClientID, r.RequestID
	case *SessionCloseRequest:
		return r.ClientID, 0
	}
	return "", 0
}

// DecodeResponse reads an answer into r, which must be fresh: fields that this
// answer lacks keep what they hold. It passes over unknown fields, because a
// newer server may send more, but demands a status and an outcome that it
// knows. Values come as plain bytes, whatever their encoding was, and the results of
// a batch share the memory of data. After an error nothing is known about the request:
// whatever answered may not even be our server.
func DecodeResponse(data []byte, r Response) error {
	if !decodePlainAnswer(data, r) {
		if err := decodeAnyAnswer(data, r); err != nil {
			return fmt.Errorf("api: not an answer: %w", err)
		}
	}
	head := r.Head()
	if !head.RespStatus.Known() {
		return fmt.Errorf("api: unknown status %q in the answer", head.RespStatus)
	}
	switch head.Outcome {
	case OutcomeApplied, OutcomeNotApplied, OutcomeUnknown:
		return nil
	}
	return fmt.Errorf("api: unknown outcome %q in the answer", head.Outcome)
}

// decodeAnyAnswer reads every answer.
func decodeAnyAnswer(data []byte, r Response) error {
	// Unmarshal takes null for the zero value. To look for it costs as much as the
	// rest, and there is none where these letters are not.
	if bytes.Contains(data, []byte("null")) {
		if _, err := fieldNames(data); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(data, r); err != nil {
		return err
	}
	return decodeValues(r)
}

// Encode writes a request or an answer as one JSON object. The error is one of
// text that is not valid UTF-8, which JSON cannot carry: replacing the bad
// bytes would make one key of two.
func Encode(v any) ([]byte, error) {
	if data, ok := encodePlain(v); ok {
		return data, nil
	}
	if data, ok := encodeRequest(v); ok {
		return data, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return data, nil
}

// fieldNames returns the names of an object's fields. It refuses what is no
// object, and null, which Unmarshal would take for the zero value.
func fieldNames(data []byte) ([]string, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if dec.PeekKind() != '{' {
		return nil, fmt.Errorf("the body must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var names []string
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String() // a token is valid only until the next call
		names = append(names, name)
		if dec.PeekKind() == 'n' {
			return nil, fmt.Errorf("%s must not be null", name)
		}
		if err := dec.SkipValue(); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken() // the closing brace, or what stands in its place
	return names, err
}
