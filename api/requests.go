package api

import "fmt"

// The paths of the HTTP interface. Each is served with and without a slash at
// its end. All but PathStatus take a POST with a JSON body.
const (
	PathSession = "/session"
	PathGet     = "/get"
	PathPut     = "/put"
	PathAppend  = "/append"
	PathCAS     = "/cas"
	PathDelete  = "/delete"
	PathStatus  = "/status"
)

// SessionRequest asks for a ClientID that no one else has or will have.
type SessionRequest struct{}

// A write carries the identity of the call: ClientID and RequestID together,
// the same in every attempt, or neither. Without them an attempt that gets no
// answer must not be repeated.

// PutRequest asks to set Key to Value.
type PutRequest struct {
	Key   string
	Value string

	ClientID  ClientID `json:",omitzero"`
	RequestID uint64   `json:",omitzero"` // numbers the client's writes from 1

	// AckedThrough says that the client has an answer for every number up to
	// this one, or has given it up, so that the server may forget them. Absent
	// means RequestID-1: one call at a time.
	AckedThrough *uint64 `json:",omitzero"`
}

// AppendRequest asks to add Value to the end of what Key holds. An absent key
// counts as empty.
type AppendRequest struct {
	Key   string
	Value string

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // see PutRequest
}

// CASRequest asks to set Key to Value if it holds CompareValue now. An absent
// key holds nothing, which is not the same as the empty value.
type CASRequest struct {
	Key          string
	CompareValue string
	Value        string

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // see PutRequest
}

// DeleteRequest asks to remove Key.
type DeleteRequest struct {
	Key string

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // see PutRequest
}

// GetRequest asks what Key holds. The posts' clients send an identity with
// their reads too; it is accepted and ignored, because a read may be repeated.
type GetRequest struct {
	Key string

	ClientID  ClientID `json:",omitzero"`
	RequestID uint64   `json:",omitzero"`
}

// Limits bounds what a server takes from a client. A zero field stands for the
// default named there.
type Limits struct {
	KeyBytes   int // zero means 1 KiB
	ValueBytes int // of Value and of CompareValue; zero means 1 MiB
	BodyBytes  int // of the whole request; zero means 8 MiB
}

// WithDefaults returns the limits with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	if l.KeyBytes == 0 {
		l.KeyBytes = 1 << 10
	}
	if l.ValueBytes == 0 {
		l.ValueBytes = 1 << 20
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = 8 << 20
	}
	return l
}

// RequestError says why a request is refused before anything was done for it.
// Status is StatusBadRequest or StatusTooLarge; Text is for people.
type RequestError struct {
	Status Status
	Text   string
}

func (e *RequestError) Error() string { return string(e.Status) + ": " + e.Text }

// Response returns the answer that tells the client.
func (e *RequestError) Response() *ErrorResponse { return Refuse(e.Status, e.Text) }

func badRequest(format string, args ...any) error {
	return &RequestError{StatusBadRequest, fmt.Sprintf(format, args...)}
}

// Request is what Decode can read: one of the structs above, by pointer.
type Request interface {
	// Validate checks the request against the limits of the server that was
	// asked and returns a *RequestError if it must be refused. What passes can
	// be given to the log.
	Validate(Limits) error

	// required names the fields that must be there, even if empty.
	required() []string
}

func (r *SessionRequest) required() []string { return nil }
func (r *GetRequest) required() []string     { return []string{"Key"} }
func (r *PutRequest) required() []string     { return []string{"Key", "Value"} }
func (r *AppendRequest) required() []string  { return []string{"Key", "Value"} }
func (r *CASRequest) required() []string     { return []string{"Key", "CompareValue", "Value"} }
func (r *DeleteRequest) required() []string  { return []string{"Key"} }

// Validate accepts every SessionRequest.
func (r *SessionRequest) Validate(Limits) error { return nil }

// Validate checks the key only: the identity of a read is ignored.
func (r *GetRequest) Validate(l Limits) error {
	return validate(l, r.Key)
}

// Validate checks key, value and identity.
func (r *PutRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Value); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key, value and identity. The value that results can only be
// judged when the entry is applied.
func (r *AppendRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Value); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key, both values and identity.
func (r *CASRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.CompareValue, r.Value); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key and identity.
func (r *DeleteRequest) Validate(l Limits) error {
	if err := validate(l, r.Key); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

func validate(l Limits, key string, values ...string) error {
	l = l.WithDefaults()
	if key == "" {
		return badRequest("Key must not be empty")
	}
	if len(key) > l.KeyBytes {
		return &RequestError{StatusTooLarge, fmt.Sprintf("Key has %d bytes; at most %d are allowed", len(key), l.KeyBytes)}
	}
	for _, v := range values {
		if len(v) > l.ValueBytes {
			return &RequestError{StatusTooLarge, fmt.Sprintf("a value has %d bytes; at most %d are allowed", len(v), l.ValueBytes)}
		}
	}
	return nil
}

// validateIdentity refuses half an identity. If it were taken for none, a client
// that forgot one field would lose its protection without a word.
func validateIdentity(id ClientID, number uint64, acked *uint64) error {
	switch {
	case id == "" && number == 0 && acked == nil:
		return nil
	case id == "":
		return badRequest("RequestID or AckedThrough without ClientID")
	case number == 0:
		return badRequest("ClientID needs a RequestID of 1 or more")
	case len(id) > MaxClientIDBytes:
		return badRequest("ClientID has %d bytes; at most %d are allowed", len(id), MaxClientIDBytes)
	case acked != nil && *acked >= number:
		return badRequest("AckedThrough %d must be less than RequestID %d", *acked, number)
	}
	return nil
}

// Acked returns the low-water mark that a write with this number declares: what
// AckedThrough says, or RequestID-1 if it is absent. For a write without
// identity it is 0.
func Acked(number uint64, ackedThrough *uint64) uint64 {
	switch {
	case ackedThrough != nil:
		return *ackedThrough
	case number == 0:
		return 0
	}
	return number - 1
}
