package main

import "bytes"

// scanner reads the objects of package front out of JSON that has neither escapes
// nor anything unexpected: enough to see what the parsing of JSON costs at least.
type scanner struct {
	b []byte // what is left

	// The fields of the last object; those that it does not have are from before.
	key, value      []byte
	client, request uint64
}

// object reads the next object, if there is one.
func (s *scanner) object() bool {
	begin := bytes.IndexByte(s.b, '{')
	if begin < 0 {
		return false
	}
	s.b = s.b[begin+1:]
	for len(s.b) > 0 {
		switch s.b[0] {
		case '}':
			s.b = s.b[1:]
			return true
		case '"':
			s.field()
		default:
			s.b = s.b[1:] // a comma or a space
		}
	}
	return false
}

// field reads one field, its name first.
func (s *scanner) field() {
	name := s.text()
	for len(s.b) > 0 && (s.b[0] == ':' || s.b[0] == ' ') {
		s.b = s.b[1:]
	}
	if len(s.b) > 0 && s.b[0] == '"' {
		if text := s.text(); string(name) == "key" {
			s.key = text
		} else {
			s.value = text
		}
		return
	}
	var n uint64
	for len(s.b) > 0 && '0' <= s.b[0] && s.b[0] <= '9' {
		n = n*10 + uint64(s.b[0]-'0')
		s.b = s.b[1:]
	}
	if string(name) == "client_id" {
		s.client = n
	} else {
		s.request = n
	}
}

// text reads what is between two quotes; s.b begins with the first.
func (s *scanner) text() []byte {
	s.b = s.b[1:]
	end := bytes.IndexByte(s.b, '"')
	if end < 0 {
		s.b = nil
		return nil
	}
	text := s.b[:end]
	s.b = s.b[end+1:]
	return text
}
