package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The paths of the HTTP interface. Each is served with and without a slash at
// its end. All but PathStatus take a POST with a JSON body; PathAdminSnapshot,
// PathAdminMembers and PathAdminHash also take a GET.
const (
	PathSession = "/session"
	PathGet     = "/get"
	PathPut     = "/put"
	PathAppend  = "/append"
	PathCAS     = "/cas"
	PathDelete  = "/delete"
	PathScan    = "/scan"
	PathBatch   = "/batch"
	PathStatus  = "/status"

	PathSessionClose = "/session/close"

	PathAdminSnapshot = "/admin/snapshot"
	PathAdminTransfer = "/admin/transfer"
	PathAdminMembers  = "/admin/members"
	PathAdminHash     = "/admin/hash"
)

// HeaderConfiguration is a header of every answer: Configuration.Index, in
// decimal, of the configuration that is in force as far as the answering server
// knows. When it grows, servers may have come or gone.
const HeaderConfiguration = "Raft-Configuration"

// HeaderLeader is a header of the answers of a server that knows another one to
// lead: the address of that one for clients, host:port, or "" if it is not known.
// A client that goes there saves the detour.
const HeaderLeader = "Raft-Leader"

// HeaderRequestID is a header of every request and answer: text by which the
// lines of the servers' logs about one request are found. A server makes one if
// the client has not, or if it is longer than [MaxRequestIDBytes] or has
// characters other than letters, digits and "-_.:/+=@". It protects nothing and
// identifies no write; ClientID and RequestID do.
const HeaderRequestID = "X-Request-Id"

// MaxRequestIDBytes bounds HeaderRequestID.
const MaxRequestIDBytes = 64

// HeaderIdempotencyKey is a header that a write may have instead of ClientID and
// RequestID: text that no other write has, of 1 to MaxIdempotencyKeyBytes printable
// ASCII characters, bare or in double quotes. A bare one has no space, quote,
// backslash or comma; in quotes, a quote and a backslash have a backslash before
// them.
const HeaderIdempotencyKey = "Idempotency-Key"

// MaxIdempotencyKeyBytes is the greatest length of an Idempotency-Key, in bytes.
const MaxIdempotencyKeyBytes = 64

// HeaderIdempotentReplayed is "true" in an answer that a write with an
// Idempotency-Key got for an earlier copy of it.
const HeaderIdempotentReplayed = "Idempotent-Replayed"

// SessionRequest asks for a ClientID that no one else has or will have.
type SessionRequest struct{}

// SessionCloseRequest says that a client is done, so that others have its room.
// No write of the session may be under way, or one that is may be refused; and of
// a ClientID that the client chose itself, request 1 may be carried out again.
type SessionCloseRequest struct {
	ClientID ClientID
}

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

	// IfVersion demands that Key has this version, or is absent if it is 0; else
	// the answer is StatusConditionFailed. nil demands nothing.
	IfVersion *uint64  `json:",omitzero"`
	Encoding  Encoding `json:",omitzero"` // of Value, and of the value in the answer
}

// AppendRequest asks to add Value to the end of what Key holds. An absent key
// counts as empty.
type AppendRequest struct {
	Key   string
	Value string

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // this and the rest: see PutRequest
	IfVersion    *uint64  `json:",omitzero"`
	Encoding     Encoding `json:",omitzero"`
}

// CASRequest asks to set Key to Value if it holds CompareValue now. An absent
// key holds nothing, which is not the same as the empty value; ExpectAbsent, in
// the place of CompareValue, asks to set Key if it is absent.
type CASRequest struct {
	Key          string
	CompareValue string
	Value        string
	ExpectAbsent bool `json:",omitzero"`

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // see PutRequest
	Encoding     Encoding `json:",omitzero"` // of both values, and of the one in the answer
}

// DeleteRequest asks to remove Key.
type DeleteRequest struct {
	Key string

	ClientID     ClientID `json:",omitzero"`
	RequestID    uint64   `json:",omitzero"`
	AckedThrough *uint64  `json:",omitzero"` // this and the rest: see PutRequest
	IfVersion    *uint64  `json:",omitzero"`
	Encoding     Encoding `json:",omitzero"`
}

// GetRequest asks what Key holds. The posts' clients send an identity with
// their reads too; it is accepted and ignored, because a read may be repeated.
type GetRequest struct {
	Key         string
	Consistency Consistency `json:",omitzero"` // "" means linearizable
	Encoding    Encoding    `json:",omitzero"` // of the value in the answer

	ClientID  ClientID `json:",omitzero"`
	RequestID uint64   `json:",omitzero"`
}

// ScanRequest asks for the keys that begin with Prefix, and what they hold.
type ScanRequest struct {
	Prefix string // "" for all keys
	After  string `json:",omitzero"` // only keys behind this one: Next of the answer before
	At     uint64 `json:",omitzero"` // in this state: AppliedIndex of the answer before, of the same server; absent means the newest
	Limit  int    `json:",omitzero"` // at most so many, up to MaxScanLimit; absent means DefaultScanLimit

	Consistency Consistency `json:",omitzero"` // not ConsistencyLog; "" means linearizable
	Encoding    Encoding    `json:",omitzero"` // of the values in the answer
}

// How many keys an answer to a ScanRequest has.
const (
	DefaultScanLimit = 100
	MaxScanLimit     = 1000
)

// MaxScanBytes bounds the keys and values of an answer to a ScanRequest. One more
// item may go beyond it, so that there is always one.
const MaxScanBytes = 1 << 20

// Consistency is what a read promises. All but ConsistencyStale are
// linearizable: the answer includes every write that was answered before the
// read was sent. They differ in what that costs, and in what it relies on.
type Consistency string

// The levels.
const (
	// ConsistencyLinearizable asks the voters whether the leader still leads, one
	// round for all reads that wait. It relies on no clock.
	ConsistencyLinearizable Consistency = "linearizable"

	// ConsistencyLease asks nobody as long as the leader's lease holds, and relies
	// on clocks that run at nearly the same speed. Without a lease it is
	// ConsistencyLinearizable, never less.
	ConsistencyLease Consistency = "lease"

	// ConsistencyLog gives the read a place in the log, like a write.
	ConsistencyLog Consistency = "log"

	// ConsistencyStale answers from the server that was asked, without asking
	// anybody. The answer may be old; it says how old.
	ConsistencyStale Consistency = "stale"
)

// SnapshotRequest asks the server that gets it to take a snapshot of its store.
type SnapshotRequest struct{}

// HashRequest asks the leader for a mark in the log, at which every server notes
// the hash of its state. It changes nothing.
type HashRequest struct{}

// TransferRequest asks the leader to hand over to the server To; 0 stands for
// the voter that lacks least.
type TransferRequest struct {
	To uint64 `json:",omitzero"`
}

// MembersRequest asks for one change of the configuration: all that it names
// comes into force together. It takes place only if the configuration in force
// is the one at index Expected, so a copy that comes late changes nothing; a
// copy of the change that was made last is answered like the first.
type MembersRequest struct {
	Expected uint64      // Configuration.Index of the configuration that the change is made for
	Add      []NewMember `json:",omitzero"` // as learners
	Promote  []uint64    `json:",omitzero"` // learners that have caught up become voters
	Demote   []uint64    `json:",omitzero"` // voters become learners
	Remove   []uint64    `json:",omitzero"`
}

// NewMember is a server to be added.
type NewMember struct {
	ID   uint64
	Raft string // the address for the other servers, host:port
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

func (r *SessionRequest) required() []string      { return nil }
func (r *SessionCloseRequest) required() []string { return []string{"ClientID"} }
func (r *GetRequest) required() []string          { return []string{"Key"} }
func (r *PutRequest) required() []string          { return []string{"Key", "Value"} }
func (r *AppendRequest) required() []string       { return []string{"Key", "Value"} }
func (r *DeleteRequest) required() []string       { return []string{"Key"} }
func (r *ScanRequest) required() []string         { return []string{"Prefix"} }
func (r *BatchRequest) required() []string        { return []string{"Operations"} }

func (r *CASRequest) required() []string {
	if r.ExpectAbsent {
		return []string{"Key", "Value"}
	}
	return []string{"Key", "CompareValue", "Value"}
}

func (r *SnapshotRequest) required() []string { return nil }
func (r *HashRequest) required() []string     { return nil }
func (r *TransferRequest) required() []string { return nil }
func (r *MembersRequest) required() []string  { return []string{"Expected"} }

// Validate accepts every SessionRequest.
func (r *SessionRequest) Validate(Limits) error { return nil }

// Validate checks the ClientID.
func (r *SessionCloseRequest) Validate(Limits) error {
	if r.ClientID == "" {
		return badRequest("ClientID must not be empty")
	}
	if len(r.ClientID) > MaxClientIDBytes {
		return badRequest("ClientID has %d bytes; at most %d are allowed", len(r.ClientID), MaxClientIDBytes)
	}
	return nil
}

// Validate checks key and level: the identity of a read is ignored.
func (r *GetRequest) Validate(l Limits) error {
	switch r.Consistency {
	case "", ConsistencyLinearizable, ConsistencyLease, ConsistencyLog, ConsistencyStale:
		return validate(l, r.Key, r.Encoding)
	}
	return badRequest("Consistency %q is no level; use linearizable, lease, log or stale", r.Consistency)
}

// Validate checks prefix, limit and level.
func (r *ScanRequest) Validate(l Limits) error {
	switch r.Consistency {
	case "", ConsistencyLinearizable, ConsistencyLease, ConsistencyStale:
	default:
		return badRequest("Consistency %q is no level of a scan; use linearizable, lease or stale", r.Consistency)
	}
	l = l.WithDefaults()
	if len(r.Prefix) > l.KeyBytes || len(r.After) > l.KeyBytes {
		return &RequestError{StatusTooLarge, fmt.Sprintf("no key has more than %d bytes, but Prefix or After", l.KeyBytes)}
	}
	if r.Limit < 0 || r.Limit > MaxScanLimit {
		return badRequest("Limit %d must be from 1 to %d; go on with After for more", r.Limit, MaxScanLimit)
	}
	_, err := r.Encoding.Decode("")
	return err
}

// Validate checks key, value and identity.
func (r *PutRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Encoding, r.Value); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key, value and identity. The value that results can only be
// judged when the entry is applied.
func (r *AppendRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Encoding, r.Value); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key, both values and identity.
func (r *CASRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Encoding, r.CompareValue, r.Value); err != nil {
		return err
	}
	if r.ExpectAbsent && r.CompareValue != "" {
		return badRequest("CompareValue and ExpectAbsent contradict each other; leave one out")
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate checks key and identity.
func (r *DeleteRequest) Validate(l Limits) error {
	if err := validate(l, r.Key, r.Encoding); err != nil {
		return err
	}
	return validateIdentity(r.ClientID, r.RequestID, r.AckedThrough)
}

// Validate accepts every SnapshotRequest.
func (r *SnapshotRequest) Validate(Limits) error { return nil }

// Validate accepts every HashRequest.
func (r *HashRequest) Validate(Limits) error { return nil }

// Validate accepts every TransferRequest: who may lead, only the leader knows.
func (r *TransferRequest) Validate(Limits) error { return nil }

// Validate checks what can be said without knowing the configuration: there is a
// change, no server has two places in it, and the new ones have addresses.
func (r *MembersRequest) Validate(Limits) error {
	named := map[uint64]bool{}
	for _, ids := range [][]uint64{newIDs(r.Add), r.Promote, r.Demote, r.Remove} {
		for _, id := range ids {
			switch {
			case id == 0:
				return badRequest("server id 0 means nobody; ids start at 1")
			case named[id]:
				return badRequest("server %d is named twice; name each server once", id)
			}
			named[id] = true
		}
	}
	if len(named) == 0 {
		return badRequest("no change is named; give Add, Promote, Demote or Remove")
	}
	taken := map[string]uint64{}
	for _, m := range r.Add {
		if other, double := taken[m.Raft]; double {
			return badRequest("servers %d and %d have the same address %s; give each its own", other, m.ID, m.Raft)
		}
		if err := CheckAddress(m.Raft); err != nil {
			return badRequest("server %d has no address %q: %v; give host:port", m.ID, m.Raft, err)
		}
		taken[m.Raft] = m.ID
	}
	return nil
}

func newIDs(members []NewMember) []uint64 {
	ids := make([]uint64, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}

// MaxAddressBytes is the greatest length of a server's address, in bytes.
const MaxAddressBytes = 256

// CheckAddress says what is wrong with an address at which a server can be
// reached, host:port.
func CheckAddress(address string) error {
	i := strings.LastIndexByte(address, ':')
	switch {
	case i < 0:
		return errors.New("it has no port")
	case i == 0:
		return errors.New("it has no host")
	case len(address) > MaxAddressBytes:
		return fmt.Errorf("it has more than %d bytes", MaxAddressBytes)
	case strings.ContainsAny(address, " ,=/\t\r\n"):
		return errors.New("it has characters that no address has")
	}
	if port, err := strconv.ParseUint(address[i+1:], 10, 16); err != nil || port == 0 {
		return fmt.Errorf("the port %q is no number from 1 to 65535", address[i+1:])
	}
	return nil
}

func validate(l Limits, key string, e Encoding, values ...string) error {
	l = l.WithDefaults()
	if key == "" {
		return badRequest("Key must not be empty")
	}
	if len(key) > l.KeyBytes {
		return &RequestError{StatusTooLarge, fmt.Sprintf("Key has %d bytes; at most %d are allowed", len(key), l.KeyBytes)}
	}
	if _, err := e.Decode(""); err != nil { // the encoding must exist even if there is no value
		return err
	}
	for _, text := range values {
		v, err := e.Decode(text)
		if err != nil {
			return err
		}
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
