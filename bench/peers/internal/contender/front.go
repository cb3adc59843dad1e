package contender

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"time"

	"raftkv/bench/internal/rawhttp"
	"raftkv/bench/peers/internal/load"
)

func init() {
	tuned := []string{"--timeout", "150ms", "--batch"}
	registerFront("hashi-bolt", "/log.bolt", program("hashinode", "--log", "bolt"))
	registerFront("hashi-bolt-tuned", "/log.bolt", program("hashinode", append(tuned, "--log", "bolt")...))
	registerFront("hashi-wal", "/log.wal", program("hashinode", "--log", "wal"))
	registerFront("hashi-wal-tuned", "/log.wal", program("hashinode", append(tuned, "--log", "wal")...))
	registerFront("dragon", "", program("dragonnode"))
	registerFront("bound", "/journal", program("boundnode"))
	registerFront("bound-fast", "/journal", program("boundnode", "--fast"))
	registerFront("bound-nosync", "/journal", program("boundnode", "--sync=false"))
}

// registerFront adds a contender behind package front.
func registerFront(name, journal string, command func(p Place, i int) []string) {
	register(&Contender{
		Name:    name,
		Ops:     []load.Op{load.Put, load.Get, load.Batch},
		Command: command,
		Leads: func(p Place, i int) bool {
			answer, err := patient.Get("http://" + p.Clients[i] + "/leader")
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == 200
		},
		Dial: func(p Place, clients, first int, timeout time.Duration) (load.Session, error) {
			return dialHTTP(p, dialect{openFront, writeFront, goodFront}, clients, first, timeout), nil
		},
		Journal: journal,
	})
}

// openFront asks nobody: a number by chance is the client's own.
func openFront(*rawhttp.Conn) (identity, error) { return identity{number: rand.Uint64()}, nil }

func writeFront(b []byte, id identity, r load.Request) (path string, _ []byte) {
	switch r.Op {
	case load.Put:
		return "/put", appendFrontPut(b, id, r.Number, r.Key, r.Value)
	case load.Batch:
		b = append(b, '[')
		for i := range load.BatchSize {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendFrontPut(b, id, (r.Number-1)*load.BatchSize+uint64(i)+1, r.Key+i, r.Value)
		}
		return "/batch", append(b, ']')
	}
	b = append(b, `{"key":"`...)
	b = load.AppendKey(b, r.Key)
	return "/get", append(b, `"}`...)
}

func appendFrontPut(b []byte, id identity, number uint64, key int, value string) []byte {
	b = append(b, `{"key":"`...)
	b = load.AppendKey(b, key)
	b = append(b, `","value":"`...)
	b = append(b, value...)
	b = append(b, `","client_id":`...)
	b = strconv.AppendUint(b, id.number, 10)
	b = append(b, `,"request_id":`...)
	b = strconv.AppendUint(b, number, 10)
	return append(b, '}')
}

var (
	frontOK    = []byte(`"ok":true`)
	frontFound = []byte(`"found":true`)
)

func goodFront(op load.Op, answer []byte) bool {
	return bytes.Contains(answer, frontOK) && (op != load.Find || bytes.Contains(answer, frontFound))
}
