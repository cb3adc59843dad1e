package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is a header of 12 bytes and a payload:
//
//	payload length   4   little endian, like every number here
//	payload CRC32C   4
//	header CRC32C    4   of the 8 bytes before it
//	payload              its first byte is the frame kind
//
// The header has a checksum of its own, so that a damaged length is found
// before anyone waits for the bytes it promises or makes room for them.
const (
	frameHeader = 12
	checkedPart = 8 // of the header, by its own checksum
)

type frameKind byte

// The kinds of frames. The first three make up the handshake.
const (
	helloFrame frameKind = iota + 1
	acceptFrame
	refuseFrame
	messageFrame
	requestFrame
	replyFrame
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A protocolError is the other side's fault: what it sent can be no frame, or
// not from this peer. The connection that brought it is closed.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func badf(format string, args ...any) error {
	return protocolError(fmt.Sprintf(format, args...))
}

// beginFrame appends the space for a header and the kind. endFrame must follow
// when the rest of the payload has been appended.
func beginFrame(b []byte, kind frameKind) []byte {
	b = append(b, make([]byte, frameHeader)...)
	return append(b, byte(kind))
}

// endFrame fills in the header of the frame that begins at b[start] and ends
// with b.
func endFrame(b []byte, start int) []byte {
	header, payload := b[start:start+frameHeader], b[start+frameHeader:]
	binary.LittleEndian.PutUint32(header, uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(header[:checkedPart], castagnoli))
	return b
}

// readFrame reads one frame and returns its payload, kind included, in memory
// of its own. A payload has at least one and at most limit bytes.
func readFrame(r *bufio.Reader, limit int) ([]byte, error) {
	header, err := r.Peek(frameHeader)
	if err != nil {
		return nil, err
	}
	if sum := crc32.Checksum(header[:checkedPart], castagnoli); sum != binary.LittleEndian.Uint32(header[8:]) {
		return nil, badf("a frame header is damaged: its checksum should be %08x", sum)
	}
	length, want := binary.LittleEndian.Uint32(header), binary.LittleEndian.Uint32(header[4:])
	if length == 0 || uint64(length) > uint64(limit) {
		return nil, badf("a frame has %d bytes; 1 to %d are allowed", length, limit)
	}
	r.Discard(frameHeader)
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	if sum := crc32.Checksum(payload, castagnoli); sum != want {
		return nil, badf("a frame is damaged: its checksum should be %08x", sum)
	}
	return payload, nil
}

// frameBuffered reports whether the next frame can be read without waiting. A
// damaged length may make it wrong, and readFrame finds that.
func frameBuffered(r *bufio.Reader) bool {
	if r.Buffered() < frameHeader {
		return false
	}
	header, _ := r.Peek(frameHeader)
	return uint64(r.Buffered()) >= frameHeader+uint64(binary.LittleEndian.Uint32(header))
}

// fields takes a payload apart. Past its end every field is zero, so a decoder
// may read all its fields first and ask once, with end, whether they were there.
type fields struct {
	rest []byte
	bad  bool // too short, or a field had a value that it cannot have
}

func (f *fields) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(f.rest)) {
		f.rest, f.bad = nil, true
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) uint8() uint8 {
	if b := f.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uint32() uint32 {
	if b := f.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (f *fields) uint64() uint64 {
	if b := f.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// end reports whether the fields read were all there, and nothing else.
func (f *fields) end() bool { return !f.bad && len(f.rest) == 0 }
