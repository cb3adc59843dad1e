package api

import "strings"

// ParseIdempotencyKey reads the values of the header of that name. The key is ""
// if there are none. The error is a *RequestError: a key that could be read in two
// ways would make one write of two, or two of one.
func ParseIdempotencyKey(values []string) (key string, err error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", badRequest("Idempotency-Key is given %d times", len(values))
	}
	text := strings.Trim(values[0], " \t")
	if inner, quoted := strings.CutPrefix(text, `"`); quoted {
		key, err = unquote(inner)
	} else if key = text; strings.ContainsAny(text, " \"\\,") {
		err = badRequest("Idempotency-Key has a space, quote, backslash or comma; put it in double quotes")
	}
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", badRequest("Idempotency-Key must not be empty")
	case len(key) > MaxIdempotencyKeyBytes:
		return "", badRequest("Idempotency-Key has %d bytes; at most %d are allowed", len(key), MaxIdempotencyKeyBytes)
	}
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return "", badRequest("Idempotency-Key has a character that is not printable ASCII")
		}
	}
	return key, nil
}

// unquote reads a string of RFC 8941 behind its first quote.
func unquote(text string) (string, error) {
	var key strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i == len(text)-1:
			return key.String(), nil
		case c == '"':
			return "", badRequest("Idempotency-Key has something behind its closing quote")
		case c == '\\':
			i++
			if i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", badRequest("Idempotency-Key has a backslash that escapes neither quote nor backslash")
			}
		}
		key.WriteByte(text[i])
	}
	return "", badRequest("Idempotency-Key has no closing quote")
}
