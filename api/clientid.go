package api

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxClientIDBytes is the greatest length of a ClientID, in bytes.
const MaxClientIDBytes = 64

// ClientID names the session that a write belongs to. In JSON it is a string
// or an integer; the number 7 and the string "7" are the same client, because
// the number is read as its decimal text. It is written as a string. The empty
// ClientID is no client.
type ClientID string

var errClientIDType = errors.New("ClientID must be a string or an integer")

// UnmarshalJSONFrom reads a string, or an integer as its decimal text. Going
// through a float64 would merge clients whose numbers lie above 2^53.
func (id *ClientID) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case '"':
		*id = ClientID(token.String())
	case '0':
		text := token.String()
		if !isInteger(text) {
			return errClientIDType
		}
		*id = ClientID(text)
	default:
		return errClientIDType
	}
	return nil
}

// isInteger reports whether a JSON number has no fraction and no exponent. "-0"
// is left out: the same number would be two clients.
func isInteger(number string) bool {
	for i, c := range number {
		if (c < '0' || c > '9') && (c != '-' || i != 0) {
			return false
		}
	}
	return number != "-0"
}
