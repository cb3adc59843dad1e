package transport

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"raftkv/raft"
)

// Both sides begin with a preamble of 8 bytes: the magic and the version (2).
// Then the one who dialled sends a hello and the other answers with an accept,
// which has the same fields, or with a refusal, which has a reason. Of another
// version only the preamble and the refusal can be understood; they stay as
// they are in all versions.
const (
	magic           = "raftkv"
	protocolVersion = 2
	preambleBytes   = len(magic) + 2

	// A handshake is small, and must be: whoever sends it is not known yet.
	maxHandshakeFrame = 1 << 10
	maxReason         = 512 // bytes of a refusal's text
)

// A hello says who is speaking, from which disk, and to whom.
type hello struct {
	Cluster  raft.ClusterID
	From, To raft.ServerID
	Store    raft.StoreID
	Since    raft.Index // when the speaker was added, see Config.Since

	// Run is drawn when a server starts. Another one than before shows that the
	// server was started anew, even if the machine that it ran on vanished
	// without closing its connections.
	Run uint64

	Addr     string // where the other servers reach the speaker
	HTTPAddr string // where clients reach it
}

func appendPreamble(b []byte, version uint16) []byte {
	return binary.LittleEndian.AppendUint16(append(b, magic...), version)
}

func readPreamble(r io.Reader) (version uint16, err error) {
	var b [preambleBytes]byte
	if n, err := io.ReadFull(r, b[:]); err != nil {
		if n > 0 && !strings.HasPrefix(magic, string(b[:min(n, len(magic))])) {
			return 0, badf("this is no raftkv server: it begins with %q", b[:n])
		}
		return 0, err
	}
	if string(b[:len(magic)]) != magic {
		return 0, badf("this is no raftkv server: it begins with %q", b[:])
	}
	return binary.LittleEndian.Uint16(b[len(magic):]), nil
}

// appendHello appends a whole hello or accept frame.
func appendHello(b []byte, kind frameKind, h hello) []byte {
	start := len(b)
	b = beginFrame(b, kind)
	b = appendUint64s(b, uint64(h.Cluster), uint64(h.From), uint64(h.To))
	b = append(b, h.Store[:]...)
	b = appendUint64s(b, uint64(h.Since), h.Run)
	for _, addr := range []string{h.Addr, h.HTTPAddr} {
		b = append(b, byte(len(addr)))
		b = append(b, addr...)
	}
	return endFrame(b, start)
}

// decodeHello reads the payload of a hello or accept frame, after its kind.
func decodeHello(b []byte) (hello, error) {
	f := &fields{rest: b}
	h := hello{
		Cluster: raft.ClusterID(f.uint64()),
		From:    f.server(),
		To:      f.server(),
	}
	copy(h.Store[:], f.bytes(uint32(len(h.Store))))
	h.Since = f.index()
	h.Run = f.uint64()
	h.Addr = string(f.bytes(uint32(f.uint8())))
	h.HTTPAddr = string(f.bytes(uint32(f.uint8())))
	if !f.end() || !utf8.ValidString(h.Addr) || !utf8.ValidString(h.HTTPAddr) {
		return hello{}, badf("a handshake has the wrong length or a field out of range")
	}
	return h, nil
}

// appendRefusal appends a whole refuse frame. The reason is the rest of the
// payload, UTF-8.
func appendRefusal(b []byte, reason string) []byte {
	start := len(b)
	b = beginFrame(b, refuseFrame)
	b = append(b, reason[:min(len(reason), maxReason)]...)
	return endFrame(b, start)
}

// A refusal is the reason that the other side gave.
type refusal string

func (r refusal) Error() string { return "it refuses: " + string(r) }

// greet is the handshake of the side that dialled.
func (e *endpoint) greet(p *peer, conn net.Conn, r *bufio.Reader) (hello, error) {
	conn.SetDeadline(time.Now().Add(e.cfg.HandshakeTimeout))
	b := appendPreamble(nil, protocolVersion)
	if _, err := conn.Write(appendHello(b, helloFrame, e.hello(p.id))); err != nil {
		return hello{}, err
	}
	version, err := readPreamble(r)
	if err != nil {
		return hello{}, err
	}
	payload, err := readFrame(r, maxHandshakeFrame)
	if err != nil {
		return hello{}, err
	}
	switch kind := frameKind(payload[0]); {
	case kind == refuseFrame:
		return hello{}, refusal(strings.ToValidUTF8(string(payload[1:]), "?"))
	case version != protocolVersion:
		return hello{}, badVersion(version)
	case kind != acceptFrame:
		return hello{}, badf("a handshake is answered by a frame of kind %d", kind)
	}
	h, err := decodeHello(payload[1:])
	if err != nil {
		return hello{}, err
	}
	if h.From != p.id {
		return hello{}, badf("server %d answers at the address of server %d", h.From, p.id)
	}
	if _, err := e.checkHello(h); err != nil {
		return hello{}, err
	}
	return h, conn.SetDeadline(time.Time{})
}

// welcome is the handshake of the side that was dialled, up to the answer. With
// an error the hello is what the other side says, as far as that is known. before
// is what was known of it until now; nil if it was no peer. newer is CheckStore's.
func (e *endpoint) welcome(conn net.Conn, r *bufio.Reader) (before *peer, h hello, newer bool, err error) {
	conn.SetDeadline(time.Now().Add(e.cfg.HandshakeTimeout))
	version, err := readPreamble(r)
	if err != nil {
		return nil, hello{}, false, err // nothing to say to who does not speak the protocol
	}
	if version != protocolVersion {
		err := badVersion(version)
		e.refuse(conn, err)
		return nil, hello{}, false, err
	}
	payload, err := readFrame(r, maxHandshakeFrame)
	if err != nil {
		return nil, hello{}, false, err
	}
	if kind := frameKind(payload[0]); kind != helloFrame {
		return nil, hello{}, false, badf("a connection begins with a frame of kind %d", kind)
	}
	if h, err = decodeHello(payload[1:]); err != nil {
		return nil, hello{}, false, err
	}
	before = e.peer(h.From)
	if newer, err = e.checkHello(h); err != nil {
		e.refuse(conn, err)
	}
	return before, h, newer, err
}

func badVersion(theirs uint16) error {
	return badf("protocol version %d is spoken there, version %d here", theirs, protocolVersion)
}

// hello is what this server says of itself to server to.
func (e *endpoint) hello(to raft.ServerID) hello {
	var since raft.Index
	if e.cfg.Since != nil {
		since = e.cfg.Since()
	}
	return hello{
		Cluster:  e.cfg.Cluster,
		From:     e.cfg.ID,
		To:       to,
		Store:    e.cfg.Store,
		Since:    since,
		Run:      e.run,
		Addr:     e.cfg.AdvertiseAddr,
		HTTPAddr: e.cfg.HTTPAddr,
	}
}

// checkHello finds what is wrong with the other side. That it is not a peer is
// not wrong, see SetPeers. Its store comes last: CheckStore may remember it, so
// everything else must be in order. newer is what CheckStore says.
func (e *endpoint) checkHello(h hello) (newer bool, err error) {
	switch {
	case h.Cluster != e.cfg.Cluster:
		return false, badf("server %d belongs to cluster %016x, server %d to cluster %016x", h.From, uint64(h.Cluster), e.cfg.ID, uint64(e.cfg.Cluster))
	case h.To != e.cfg.ID:
		return false, badf("server %d looks for server %d and has reached server %d", h.From, h.To, e.cfg.ID)
	case h.From == e.cfg.ID:
		return false, badf("two servers call themselves server %d", h.From)
	case h.From == raft.None:
		return false, badf("server id 0 means nobody; ids start at 1")
	}
	if e.cfg.CheckStore == nil {
		return false, nil
	}
	if newer, err = e.cfg.CheckStore(h.From, h.Store, h.Since); err != nil {
		return false, badf("store of server %d: %v", h.From, err)
	}
	return newer, nil
}

// refuse tells the other side why the connection is about to be closed, if it
// still listens.
func (e *endpoint) refuse(conn net.Conn, reason error) {
	b := appendPreamble(nil, protocolVersion)
	conn.Write(appendRefusal(b, reason.Error()))
}
