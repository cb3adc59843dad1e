package api

import (
	"encoding/base64"
	"unicode/utf8"
)

// Encoding says how a value stands in JSON. Keys are always text.
type Encoding string

// The encodings. A request says how its values stand and how it wants those of
// the answer. An answer always says how its own stand: a value that is no text
// comes in base64 whatever was asked for.
const (
	EncodingText   Encoding = ""       // as it is; it must be valid UTF-8
	EncodingBase64 Encoding = "base64" // any bytes, in the standard alphabet with padding
)

// strictBase64 has one text for each value: line breaks and stray bits behind
// the last byte are refused. Two texts of one value would be a fingerprint each
// to a reader who compares texts.
var strictBase64 = base64.StdEncoding.Strict()

// Decode returns the bytes that text stands for. The error is a *RequestError.
func (e Encoding) Decode(text string) (string, error) {
	switch e {
	case EncodingText:
		return text, nil
	case EncodingBase64:
		for _, c := range []byte(text) {
			if c == '\r' || c == '\n' {
				return "", badRequest("a value has line breaks in its base64")
			}
		}
		value, err := strictBase64.DecodeString(text)
		if err != nil {
			return "", badRequest("a value is not base64 with padding, as Encoding says")
		}
		return string(value), nil
	}
	return "", badRequest("Encoding %q is none; use base64, or leave it out for text", e)
}

// EncodeValue returns how value stands in JSON if e is asked for.
func EncodeValue(value string, e Encoding) (string, Encoding) {
	if e == EncodingBase64 || !utf8.ValidString(value) {
		return strictBase64.EncodeToString([]byte(value)), EncodingBase64
	}
	return value, EncodingText
}

// EncodeValues makes the values of an answer, which are plain bytes, such as
// stand in JSON. [DecodeResponse] does the reverse.
func EncodeValues(r Response, e Encoding) {
	eachValue(r, func(value *string, encoding *Encoding) error {
		*value, *encoding = EncodeValue(*value, e)
		return nil
	})
}

func decodeValues(r Response) error {
	return eachValue(r, func(value *string, encoding *Encoding) (err error) {
		*value, err = encoding.Decode(*value)
		*encoding = EncodingText
		return err
	})
}

func eachValue(r Response, do func(value *string, encoding *Encoding) error) error {
	switch r := r.(type) {
	case *GetResponse:
		return do(&r.Value, &r.Encoding)
	case *PutResponse:
		return do(&r.PrevValue, &r.Encoding)
	case *AppendResponse:
		return do(&r.PrevValue, &r.Encoding)
	case *DeleteResponse:
		return do(&r.PrevValue, &r.Encoding)
	case *CASResponse:
		return do(&r.PrevValue, &r.Encoding)
	case *ScanResponse:
		for i := range r.Items {
			if err := do(&r.Items[i].Value, &r.Items[i].Encoding); err != nil {
				return err
			}
		}
	}
	return nil
}
