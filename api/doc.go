// Package api holds the JSON of the HTTP interface: the request and response
// structs, the statuses with their meaning, and the one strict way to read
// them. The service and its clients share it. It knows nothing of HTTP itself.
//
//	status.go    Status and Outcome: what an answer says, and what may be done then
//	requests.go  what clients send, and what is refused at the door
//	responses.go what they get back
//	clientid.go  ClientID, a string or a number
//	json.go      Decode, DecodeResponse and Encode
//
// The field names are those of the posts; docs/http.md shows every endpoint.
package api
