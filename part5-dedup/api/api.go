// Package api is what clients and services say to each other: the JSON bodies
// of requests, each POSTed to the route that is called like it, and of the
// answers. Keys and values are text (UTF-8); JSON carries nothing else.
package api

import "errors"

// ResponseStatus says what became of a request.
type ResponseStatus string

// What can become of a request.
const (
	// StatusOK: the command was carried out, and the answer tells its result.
	StatusOK ResponseStatus = "OK"
	// StatusNotLeader: this server takes no commands now and has done nothing.
	// Ask another one.
	StatusNotLeader ResponseStatus = "NotLeader"
	// StatusFailedCommit: the command is in a log, and nobody here can say whether
	// it will be carried out. It may be so already.
	StatusFailedCommit ResponseStatus = "FailedCommit"
	// StatusDuplicateRequest: this request, or a later one of the same client, was
	// carried out before. Nothing was done now.
	StatusDuplicateRequest ResponseStatus = "DuplicateRequest"
)

// Identity says which request of which client this is. A request that is sent
// again keeps it, and no other request may have it.
type Identity struct {
	ClientID  int64 // belongs to one client; at least 1
	RequestID int64 // 1 or more, and more than the client's request before had
}

// Validate returns what is wrong with an identity. Without one, all clients
// would be one client, and each the other's duplicate.
func (id Identity) Validate() error {
	if id.ClientID < 1 || id.RequestID < 1 {
		return errors.New("ClientID and RequestID must be at least 1")
	}
	return nil
}

// Head is what every answer begins with.
type Head struct {
	RespStatus ResponseStatus
	Error      string `json:",omitempty"` // for people: what happened if not StatusOK
}

// PutRequest asks for Key to get Value.
type PutRequest struct {
	Key   string
	Value string
	Identity
}

// PutResponse answers PutRequest.
type PutResponse struct {
	Head
	KeyFound  bool   // whether the key had a value before
	PrevValue string // that value
}

// AppendRequest asks for Value to be put behind the value that Key has. A key
// without a value gets it.
type AppendRequest struct {
	Key   string
	Value string
	Identity
}

// AppendResponse answers AppendRequest.
type AppendResponse struct {
	Head
	KeyFound  bool   // whether the key had a value before
	PrevValue string // that value
}

// CASRequest asks for Key to get Value if its value is CompareValue (compare
// and swap). A key without a value stays so.
type CASRequest struct {
	Key          string
	CompareValue string
	Value        string
	Identity
}

// CASResponse answers CASRequest. The values were swapped if KeyFound and
// PrevValue is the CompareValue of the request.
type CASResponse struct {
	Head
	KeyFound  bool   // whether the key had a value before
	PrevValue string // that value
}

// GetRequest asks for the value of Key.
type GetRequest struct {
	Key string
	Identity
}

// GetResponse answers GetRequest.
type GetResponse struct {
	Head
	KeyFound bool
	Value    string
}
