package kvservice

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"raftkv/api"
)

// A snapshot file is what GET /admin/snapshot sends and `raftkv snapshot`
// reads: a line of JSON, the header, then the bytes of the snapshot, which
// docs/snapshot-format.md describes, and nothing behind them. The files of that
// name in a data directory (raft/storage) hold the same bytes behind a header of
// their own: there the store's identity tells where they are from.

// snapshotFormat begins the header, so that `head -c 30` tells what a file is. The
// name stays in every format, and the number grows.
const (
	snapshotFormatName = "raftkv-snapshot-"
	snapshotFormat     = snapshotFormatName + "1"
)

const maxSnapshotHeader = 1 << 20 // bytes; a configuration of thousands fits

// SnapshotHeader says what a snapshot file holds and where it is from.
type SnapshotHeader struct {
	Format        string // WriteSnapshotFile sets it
	Cluster       string // 16 hexadecimal digits
	ClusterName   string
	Server        uint64 // who took it
	Index         uint64 // the last entry of the log that it covers
	Term          uint64 // of that entry
	Configuration api.Configuration
	Bytes         uint64 // of the snapshot, behind the header; WriteSnapshotFile counts them
	CRC32C        uint32 // of these bytes; likewise
}

// Errors of a snapshot file.
var (
	// ErrNoSnapshotFile reports a file that is none, or of a newer format.
	ErrNoSnapshotFile = errors.New("this is no snapshot file of a format that this program knows")

	// ErrDamagedSnapshotFile reports a file with other bytes than were written.
	ErrDamagedSnapshotFile = errors.New("the snapshot file is damaged or was cut short")
)

// WriteSnapshotFile writes a snapshot file to w. The snapshot is written twice,
// first to learn its size and checksum for the header; it must be the same each
// time. The error is w's or the snapshot's.
func WriteSnapshotFile(w io.Writer, h SnapshotHeader, snapshot func(io.Writer) error) error {
	sum := crc32.New(castagnoli)
	var size counter
	if err := snapshot(io.MultiWriter(sum, &size)); err != nil {
		return err
	}
	h.Format, h.Bytes, h.CRC32C = snapshotFormat, uint64(size), sum.Sum32()
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	return snapshot(w)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReadSnapshotFile reads the header of a snapshot file. The snapshot's own bytes
// come from body, which ends with io.EOF only if they are those that were
// written and nothing follows; otherwise with ErrDamagedSnapshotFile.
func ReadSnapshotFile(r io.Reader) (h SnapshotHeader, body io.Reader, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return h, nil, err
		}
		if errors.Is(err, io.EOF) || len(line) > maxSnapshotHeader || !startsLikeHeader(line) {
			return h, nil, ErrNoSnapshotFile
		}
	}
	switch err := json.Unmarshal(line, &h); {
	case err == nil && h.Format != snapshotFormat && strings.HasPrefix(h.Format, snapshotFormatName):
		return h, nil, fmt.Errorf("%w: its format is %.40q and this program knows %q; use a newer raftkv", ErrNoSnapshotFile, h.Format, snapshotFormat)
	case err != nil || h.Format != snapshotFormat:
		return h, nil, ErrNoSnapshotFile
	}
	return h, &snapshotBody{in: in, left: h.Bytes, want: h.CRC32C, sum: crc32.New(castagnoli)}, nil
}

func startsLikeHeader(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"Format":`)) }

// snapshotBody is the part of a snapshot file behind its header.
type snapshotBody struct {
	in   *bufio.Reader
	left uint64
	want uint32
	sum  hash.Hash32
}

func (b *snapshotBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		if _, err := b.in.ReadByte(); err != io.EOF || b.sum.Sum32() != b.want {
			return 0, ErrDamagedSnapshotFile
		}
		return 0, io.EOF
	}
	n, err := b.in.Read(p[:min(uint64(len(p)), b.left)])
	b.left -= uint64(n)
	b.sum.Write(p[:n])
	if err == io.EOF && b.left > 0 {
		return n, ErrDamagedSnapshotFile
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}
