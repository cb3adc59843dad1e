package kvservice

import (
	"encoding/hex"
	"strings"

	"raftkv/api"
	"raftkv/kvservice/machine"
)

// A write, or a batch, with an Idempotency-Key is one of a session that has only this.
// Its ClientID is made here, of the header: no client can choose such an id, so
// keys and clients never meet.

// keyed gives the command of a request the identity of the key. The error is one for
// requests that cannot have a key.
func keyed(command machine.Command, request api.Request, key string) (machine.Command, error) {
	isIdentified := command.RequestID != 0
	switch command.Kind {
	case machine.KindPut, machine.KindAppend, machine.KindCAS, machine.KindDelete:
	case machine.KindBatch:
		for _, o := range request.(*api.BatchRequest).Operations {
			operation, _ := commandOf(o.Request)
			isIdentified = isIdentified || operation.RequestID != 0
		}
	case machine.KindGet:
		return command, nil // a read may be repeated anyway
	default:
		return command, &api.RequestError{Status: api.StatusBadRequest, Text: "only /put, /append, /cas, /delete and /batch take an Idempotency-Key"}
	}
	if isIdentified {
		return command, &api.RequestError{Status: api.StatusBadRequest, Text: "a write has an Idempotency-Key or a ClientID, not both"}
	}
	command.ClientID, command.RequestID = machine.NewKeyID(key), 1
	return command, nil
}

// keyedPath begins the line of a forwarded request with a key, which comes last
// there. A server that knows no keys finds no such path and does nothing. If it
// took the request for one without a key, a repetition would happen twice.
const keyedPath = "keyed "

func joinKey(line, key string) string {
	if key == "" {
		return line
	}
	return keyedPath + line + " " + hex.EncodeToString([]byte(key))
}

func splitKey(line string) (rest, key string) {
	rest, isKeyed := strings.CutPrefix(line, keyedPath)
	i := strings.LastIndexByte(rest, ' ')
	if !isKeyed || i < 0 {
		return line, ""
	}
	bytes, err := hex.DecodeString(rest[i+1:])
	if err != nil {
		return line, ""
	}
	return rest[:i], string(bytes)
}

// replayed stands behind the status in the reply to a forwarded request with a
// key, if an earlier copy of it was carried out.
const replayed = " replayed"
