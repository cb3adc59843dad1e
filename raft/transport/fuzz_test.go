package transport

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFrame reads any bytes as a stream of frames. What is accepted must be
// the encoding of what was understood.
func FuzzFrame(f *testing.F) {
	var all []byte
	for _, frame := range examples() {
		frame = bytes.TrimPrefix(frame, appendPreamble(nil, protocolVersion))
		f.Add(frame)
		all = append(all, frame...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 12
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			payload, err := readFrame(r, limit)
			if err != nil {
				return
			}
			require.True(t, len(payload) >= 1 && len(payload) <= limit)
			again := endFrame(append(beginFrame(nil, frameKind(payload[0])), payload[1:]...), 0)
			require.Equal(t, b[:len(again)], again)
			b = b[len(again):]
		}
	})
}

// FuzzMessage reads any bytes as the payload of a frame whose checksums are
// right, which a fuzzer would hardly ever hit upon. Two servers must not
// understand one payload differently, so here, too, encoding gives it back.
func FuzzMessage(f *testing.F) {
	for _, frame := range examples() {
		f.Add(bytes.TrimPrefix(frame, appendPreamble(nil, protocolVersion))[frameHeader:])
	}
	for _, payload := range badMessages() {
		f.Add(append([]byte{byte(messageFrame)}, payload...))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) == 0 {
			return
		}
		switch kind, rest := frameKind(payload[0]), payload[1:]; kind {
		case helloFrame, acceptFrame:
			if h, err := decodeHello(rest); err == nil {
				require.Equal(t, payload, appendHello(nil, kind, h)[frameHeader:])
			}
		case messageFrame:
			if m, err := decodeMessage(rest); err == nil {
				require.Equal(t, rest, appendMessage(nil, m))
				require.LessOrEqual(t, len(rest), messageSize(m))
			}
		case replyFrame:
			c := &call{id: 0x2a, sent: true, result: make(chan callResult, 1)}
			p := &peer{calls: map[uint64]*call{c.id: c}}
			if p.handleReply(rest) == nil && p.calls[c.id] == nil {
				r := <-c.result
				require.True(t, r.err != nil || bytes.Equal(rest, replyPayload(c.id, answered, r.reply)))
			}
		}
	})
}
