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

	Encoding   Encoding `json:",omitzero"` // of PrevValue
	Duplicate  bool     `json:",omitzero"` // an earlier attempt did it; this is that attempt's answer
	Leader     uint64   `json:",omitzero"`
	LeaderHTTP string   `json:",omitzero"`
	Error      string   `json:",omitzero"`
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

	Encoding   Encoding `json:",omitzero"` // of PrevValue
	Duplicate  bool     `json:",omitzero"`
	Leader     uint64   `json:",omitzero"`
	LeaderHTTP string   `json:",omitzero"`
	Error      string   `json:",omitzero"`
}

// GetResponse tells what Key holds.
type GetResponse struct {
	RespStatus Status
	Outcome    Outcome
	KeyFound   bool
	Value      string // "" if the key is absent
	Version    uint64 // of the key; 0 if it is absent

	Encoding Encoding `json:",omitzero"` // of Value

	Age // its fields stand among the others

	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// Age says how old an answer may be. Only one that may be old has Stale, and
// AgeMillis: how many milliseconds ago this server last heard from a leader and
// had applied what was committed then; nil if that never was since it started.
type Age struct {
	Stale        bool    `json:",omitzero"`
	AppliedIndex uint64  `json:",omitzero"` // where in the log the state stands
	AgeMillis    *uint64 `json:",omitzero"`
}

// ScanResponse brings keys in the order of their bytes, all from one state of the
// store: that of AppliedIndex. Two answers with the same AppliedIndex are of the
// same state. The server that has answered keeps it for a while if there are more:
// ask that one again with Next as After and AppliedIndex as At.
type ScanResponse struct {
	RespStatus Status
	Outcome    Outcome
	Items      []Item
	Next       string `json:",omitzero"` // there are more keys; ask again with this as After
	Age               // its fields stand among the others
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// Item is a key and what it holds.
type Item struct {
	Key      string
	Value    string
	Version  uint64
	Encoding Encoding `json:",omitzero"` // of Value
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

	SnapshotIndex uint64 // what the newest snapshot covers; 0 if there is none
	FirstIndex    uint64 // of the log that is kept
	LastIndex     uint64

	Sessions   int        // known to the store
	Keys       int        // in the store
	Duplicates Duplicates `json:",omitzero"` // "" while the log does not say it

	LogBytes      uint64 // what the log takes on the disk
	SnapshotBytes uint64 // the same of the snapshots

	TransferTo uint64 `json:",omitzero"` // on a leader: who is to take over; 0: no transfer is under way

	ClusterName   string // part of what the cluster's id is made of
	Configuration Configuration
	Members       []Member // of the configuration, by id
	Error         string   `json:",omitzero"`
}

// Configuration says whose word counts. Server ids are sorted.
type Configuration struct {
	Index     uint64   // where it stands in the log; 0 for the one that the cluster began with
	Voters    []uint64 // a majority of them decides
	OldVoters []uint64 `json:",omitzero"` // while the voters change: a majority of these must agree as well
	Learners  []uint64 `json:",omitzero"` // they get the log and decide nothing
}

// Member is a server of the cluster.
type Member struct {
	ID   uint64
	Raft string // the address for other servers
	HTTP string // the address for clients; "" while it is not known
	Role MemberRole

	// Since is the index of the configuration that added the server; 0 if it was
	// there from the beginning.
	Since uint64 `json:",omitzero"`

	// Match is the last index that the server is known to have stored. Only a
	// leader knows it; 0 otherwise.
	Match uint64 `json:",omitzero"`

	// Connected says that the answering server has a connection to this one.
	Connected bool `json:",omitzero"`
}

// MemberRole says what part a server has in its cluster.
type MemberRole string

// The roles. Joining and leaving voters exist only while the voters change.
const (
	RoleVoter   MemberRole = "voter"
	RoleLearner MemberRole = "learner"
	RoleJoining MemberRole = "joining" // among the new voters, not the old ones
	RoleLeaving MemberRole = "leaving" // among the old voters, not the new ones
)

// MembersResponse brings the configuration in force and who is in it. While the
// voters change that is the joint one; the answer to a MembersRequest comes when
// the change is finished, and has the one that it ends with.
type MembersResponse struct {
	RespStatus    Status
	Outcome       Outcome
	Configuration          // its fields stand among the others
	Members       []Member // by id
	Leader        uint64   `json:",omitzero"`
	LeaderHTTP    string   `json:",omitzero"`
	Error         string   `json:",omitzero"`
}

// SnapshotResponse tells of the snapshot that was taken.
type SnapshotResponse struct {
	RespStatus Status
	Outcome    Outcome
	Index      uint64 // the last index that it covers
	Bytes      uint64 // its size
	Millis     uint64 // how long it took
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// HashResponse tells where the mark stands (after a POST) or what the state was
// there on the answering server (after a GET). Servers that differ at one index
// have broken what Raft promises.
type HashResponse struct {
	RespStatus Status
	Outcome    Outcome
	Index      uint64
	Hash       string `json:",omitzero"` // of the whole state: 64 hexadecimal digits
	Keys       int    `json:",omitzero"`
	Sessions   int    `json:",omitzero"`
	Leader     uint64 `json:",omitzero"`
	LeaderHTTP string `json:",omitzero"`
	Error      string `json:",omitzero"`
}

// TransferResponse tells who leads now: Leader and LeaderHTTP.
type TransferResponse ErrorResponse

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
func (r *ScanResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *StatusResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *MembersResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *SnapshotResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the fields that all answers share.
func (r *HashResponse) Head() ErrorResponse {
	return ErrorResponse{r.RespStatus, r.Outcome, r.Leader, r.LeaderHTTP, r.Error}
}

// Head returns the answer itself.
func (r *TransferResponse) Head() ErrorResponse { return ErrorResponse(*r) }
