package api

import "strings"

// Response is what every answer has: one JSON object with these fields. Ask for
// them through Head; the structs are used by pointer.
type Response interface {
	Head() ErrorResponse
}

// ErrorResponse is the answer to a request that brought no result, and the part
// that all answers share.
type ErrorResponse struct {
	RespStatus Status
	Outcome    Outcome

	// Leader is the id of the server that leads and LeaderHTTP its address
	// (host:port), as far as the answering server knows; 0 and "" if it does not.
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`

	Error string `json:",omitzero"` // why, for people
}

// Refuse returns the answer for a status that has no result, with its outcome.
// The text may quote what a client sent; bytes that are no text are replaced.
func Refuse(s Status, text string) *ErrorResponse {
	return &ErrorResponse{RespStatus: s, Outcome: s.Outcome(), Error: strings.ToValidUTF8(text, "\uFFFD")}
}

// SessionResponse brings the ClientID that was made for the client.
type SessionResponse struct {
	RespStatus Status
	Outcome    Outcome
	ClientID   ClientID
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// PutResponse tells what Key held before.
type PutResponse struct {
	RespStatus Status
	Outcome    Outcome
	KeyFound   bool   // whether Key was there before
	PrevValue  string // what it held; "" if it was absent
	Version    uint64 // the key's version now: how many writes the store had executed with this one
	Duplicate  bool   `json:",omitzero"` // an earlier attempt did it; this is that attempt's answer
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// AppendResponse tells what Key held before. The fields are those of PutResponse.
type AppendResponse PutResponse

// DeleteResponse tells what Key held. Version is 0: the key is gone.
type DeleteResponse PutResponse

// CASResponse tells what Key held before, and whether it was replaced.
type CASResponse struct {
	RespStatus Status
	Outcome    Outcome
	KeyFound   bool
	PrevValue  string
	Swapped    bool   // whether Key held CompareValue and holds Value now
	Version    uint64 // the key's version after this; 0 if it is absent
	Duplicate  bool   `json:",omitzero"`
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// GetResponse tells what Key holds.
type GetResponse struct {
	RespStatus Status
	Outcome    Outcome
	KeyFound   bool
	Value      string // "" if the key is absent
	Version    uint64 // of the key; 0 if it is absent
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// StatusResponse is one server's view of the cluster. A server that is cut off
// may still believe an old leadership; ID says whose view it is.
type StatusResponse struct {
	RespStatus Status
	Outcome    Outcome
	Cluster    string // 16 hexadecimal digits
	ID         uint64
	Role       string // follower, precandidate, candidate or leader
	Term       uint64
	Leader     uint64 // 0: none known
	LeaderHTTP string
	Commit     uint64 // the last index known to be committed
	Applied    uint64 // the last index that the store has taken in
	FirstIndex uint64 // of the log that is kept
	LastIndex  uint64
	Sessions   int // known to the store
	Members    []Member
	Error      string `json:",omitzero"`
}

// Member is a server of the cluster.
type Member struct {
	ID   uint64
	Raft string // the address for other servers
	HTTP string // the address for clients; "" while it is not known
}

// Head returns the answer itself.
func (r *ErrorResponse) Head() ErrorResponse { return *r }

// Head returns the fields that all answers share.
func (r *SessionResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *PutResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *AppendResponse) Head() ErrorResponse { return (*PutResponse)(r).Head() }

// Head returns the fields that all answers share.
func (r *DeleteResponse) Head() ErrorResponse { return (*PutResponse)(r).Head() }

// Head returns the fields that all answers share.
func (r *CASResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *GetResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *StatusResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}
