// Package api is what clients and services say to each other: the JSON bodies
// of requests, each POSTed to the route that is called like it, and of the
// answers. Keys and values are text (UTF-8); JSON carries nothing else.
package api

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
)

// Head is what every answer begins with.
type Head struct {
	RespStatus ResponseStatus
	Error      string `json:",omitempty"` // for people: what happened if not StatusOK
}

// PutRequest asks for Key to get Value.
type PutRequest struct {
	Key   string
	Value string
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
}

// GetResponse answers GetRequest.
type GetResponse struct {
	Head
	KeyFound bool
	Value    string
}
