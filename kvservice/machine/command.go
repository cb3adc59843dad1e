package machine

import (
	"crypto/sha256"
	"errors"
	"strings"

	"raftkv/api"
)

// Kind says what a command does. The numbers stand in logs on disks: they are
// never changed and never used again.
type Kind uint8

// The kinds of commands.
const (
	KindSettings    Kind = 1 // set the bounds that all servers share
	KindOpenSession Kind = 2 // register a ClientID that a server has made
	KindPut         Kind = 3
	KindAppend      Kind = 4
	KindCAS         Kind = 5
	KindDelete      Kind = 6
	KindGet         Kind = 7 // a read that takes its place in the log like a write

	// Since version 2 of the encoding.
	KindCloseSession Kind = 8 // forget a client that is done
	KindBatch        Kind = 9 // several operations in one entry

	// KindMark changes nothing. It says: note here what the state is. Every server
	// comes by this place, and each must be in the same state then.
	KindMark Kind = 10
)

// MaxBatchOperations is how many operations a batch may have; it has at least one.
// It decides which commands can be read, so it does not follow
// api.MaxBatchOperations, which may be less but not more.
const MaxBatchOperations = 1024

func (k Kind) isWrite() bool { return KindPut <= k && k <= KindDelete }

// Command is one operation on its way through the log. Which fields count
// depends on Kind. It has two hundred bytes, so inside it goes by its address.
type Command struct {
	Kind  Kind
	Stamp LogTime // when it was submitted, see LogClock

	// ClientID and RequestID name a write of a session, AckedThrough is what the
	// client is done with (less than RequestID; see api.Acked). KindOpenSession
	// and KindCloseSession have the ClientID alone.
	// A KindBatch has them only for its Idempotency-Key; else its operations do.
	ClientID     api.ClientID
	RequestID    uint64
	AckedThrough uint64

	// Nonce names a command without RequestID, for the server that waits for it.
	// Nobody ever submits such a command a second time.
	Nonce Nonce

	Key          string
	Value        string
	CompareValue string // KindCAS
	ExpectAbsent bool   // KindCAS: instead of CompareValue, the key must hold nothing

	// IfVersion is a condition of a put, an append or a delete: the key must have
	// this version, or be absent if it is 0. nil is no condition.
	IfVersion *uint64

	Settings Settings // KindSettings

	// Operations of a KindBatch, in their order: writes and reads, each with an
	// identity of its own or none, without stamp and nonce.
	Operations []Command
}

// Nonce is a random value that a server makes for one command.
type Nonce [16]byte

// Fingerprint tells the operations that may carry one request number apart. It
// is the SHA-256 of kind, key, value, compare value and condition.
type Fingerprint [sha256.Size]byte

// Identity says which request a command is a copy of. Copies may come through
// several leaders and stand at several indexes; all that wait for one of them
// are answered by the first that is applied. Two values are the same request if
// they are equal. The zero Identity is none.
type Identity struct {
	// Of a write with a session. Without the fingerprint, someone who uses the
	// number for something else would be given this request's answer.
	ClientID    api.ClientID
	RequestID   uint64
	Fingerprint Fingerprint

	Nonce Nonce // of any other command
}

// Identity returns the identity that answers to c go by.
func (c Command) Identity() Identity {
	if c.RequestID == 0 {
		return Identity{Nonce: c.Nonce}
	}
	return Identity{ClientID: c.ClientID, RequestID: c.RequestID, Fingerprint: c.fingerprint()}
}

func (c *Command) fingerprint() Fingerprint {
	var room [512]byte // on the stack: nearly every operation fits
	b := c.appendOperation(room[:0])
	if c.conditional() {
		b = c.appendCondition(b)
	}
	return sha256.Sum256(b)
}

// issuedIDPrefix and issuedIDText describe the ClientIDs that servers make:
// "s-" and what crypto/rand.Text returns, 26 characters of base32.
const (
	issuedIDPrefix   = "s-"
	issuedIDText     = 26
	issuedIDAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// NewIssuedID returns the ClientID for KindOpenSession. text must come fresh
// from crypto/rand.Text: an id that was given to somebody before would mix two
// clients' writes.
func NewIssuedID(text string) api.ClientID { return api.ClientID(issuedIDPrefix + text) }

// IsIssued reports whether id has the form of the ids that servers make. Such an
// id has a session only if it was registered; an id of any other form opens one
// with its first request.
func IsIssued(id api.ClientID) bool {
	text, ok := strings.CutPrefix(string(id), issuedIDPrefix)
	return ok && len(text) == issuedIDText && strings.Trim(text, issuedIDAlphabet) == ""
}

// keyPrefix marks the ids of Idempotency-Keys. It is no UTF-8, and every door
// refuses a ClientID that is not, so no client can choose such an id.
const keyPrefix = "\xff"

// NewKeyID returns the ClientID for a write that came with an Idempotency-Key,
// which must not be empty: that of a session with one request, number 1. It is
// as long as the key and a byte, and stands in the log and in the session table.
func NewKeyID(key string) api.ClientID { return api.ClientID(keyPrefix + key) }

// IsKey reports whether id is one of NewKeyID. Only the HTTP layer makes them,
// from a header; as a ClientID they must be refused.
func IsKey(id api.ClientID) bool { return strings.HasPrefix(string(id), keyPrefix) }

// conditional reports whether c has a condition that version 1 does not know.
func (c *Command) conditional() bool { return c.ExpectAbsent || c.IfVersion != nil }

var errInconsistent = errors.New("machine: the fields of the command contradict each other")

// check finds combinations that no server submits. What the API refuses at the
// door is refused here too, because an entry may come from elsewhere.
func (c *Command) check() error {
	ok := c.conditionFits()
	switch {
	case !ok:
	case c.Kind == KindSettings:
		ok = c.ClientID == "" && c.RequestID == 0 && c.Settings.complete()
	case c.Kind == KindOpenSession:
		ok = IsIssued(c.ClientID) && c.RequestID == 0
	case c.Kind == KindCloseSession:
		ok = c.ClientID != "" && !IsKey(c.ClientID) && c.RequestID == 0
	case c.Kind == KindBatch && c.isKeyed():
		ok = c.RequestID == 1 && c.AckedThrough == 0 && c.checkOperations()
	case c.Kind == KindBatch:
		ok = c.ClientID == "" && c.RequestID == 0 && c.checkOperations()
	case c.Kind.isWrite() && c.RequestID > 0:
		ok = c.ClientID != "" && c.AckedThrough < c.RequestID && (!IsKey(c.ClientID) || c.RequestID == 1)
	default:
		ok = c.ClientID == "" && c.RequestID == 0
	}
	if !ok {
		return errInconsistent
	}
	return nil
}

// conditionFits reports whether the condition is one that the kind can have.
func (c *Command) conditionFits() bool {
	switch c.Kind {
	case KindPut, KindAppend, KindDelete:
		return !c.ExpectAbsent
	case KindCAS:
		return c.IfVersion == nil && (!c.ExpectAbsent || c.CompareValue == "")
	}
	return !c.conditional()
}

// isKeyed reports whether c came with an Idempotency-Key.
func (c *Command) isKeyed() bool { return IsKey(c.ClientID) }

// checkOperations reports whether a batch is one: not too long, and with nothing
// in it but writes and reads. With a key for all of them none has an identity.
func (c *Command) checkOperations() bool {
	for i := range c.Operations {
		o := &c.Operations[i]
		if !o.Kind.isWrite() && o.Kind != KindGet || o.Stamp != 0 || o.Nonce != (Nonce{}) || o.check() != nil {
			return false
		}
		if c.isKeyed() && o.ClientID != "" {
			return false
		}
	}
	return 0 < len(c.Operations) && len(c.Operations) <= MaxBatchOperations
}
