package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"

	"raftkv/raft"
)

// The log is a row of segments, files named log-0000000001, log-0000000002 and
// so on. A segment is made in full before it gets its name: filled with zeros,
// so that a later write changes neither its size nor what the file system keeps
// about it, and one fdatasync is one write to the disk. Only the last segment
// is written to.
//
// It begins with a header, all numbers little endian:
//
//	offset  0      8        12      16        24           32        48        64
//	        magic  format   header  sequence  number of    store id  reserved  first
//	               version  CRC     number    first batch            (zero)    record
//
// The header was durable before the file had its name. If it is damaged, it is
// never for a loss of power.
const (
	segmentMagic  = "raftkvlg"
	segmentHeader = 64 // bytes
	formatVersion = 1

	defaultSegmentBytes = 16 << 20
	maxSegmentBytes     = 1 << 30 // so that a foreign file cannot claim all memory
)

// segmentInfo is what a segment's header says.
type segmentInfo struct {
	sequence   uint64
	firstBatch uint64 // the number of the first batch written to it, now or later
	store      raft.StoreID
}

func segmentName(sequence uint64) string { return fmt.Sprintf("log-%010d", sequence) }

// segmentSequence is the inverse of segmentName.
func segmentSequence(name string) (sequence uint64, ok bool) {
	if _, err := fmt.Sscanf(name, "log-%d", &sequence); err != nil {
		return 0, false
	}
	return sequence, segmentName(sequence) == name
}

// headerCRC covers the header h of a segment or a snapshot but for itself, and is
// not seeded: the store id stands in the header.
func headerCRC(h []byte) uint32 {
	return checksum(checksum(0).of(h[:12])).of(h[16:])
}

func (s segmentInfo) encode() []byte {
	h := make([]byte, segmentHeader)
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[8:], formatVersion)
	binary.LittleEndian.PutUint64(h[16:], s.sequence)
	binary.LittleEndian.PutUint64(h[24:], s.firstBatch)
	copy(h[32:], s.store[:])
	binary.LittleEndian.PutUint32(h[12:], headerCRC(h))
	return h
}

// parseSegment reads the header of the segment in b. file is for the errors.
func parseSegment(file string, b []byte) (segmentInfo, error) {
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic {
		return segmentInfo{}, &CorruptError{file, 0, "it does not begin like a segment of the log"}
	}
	if headerCRC(b[:segmentHeader]) != binary.LittleEndian.Uint32(b[12:]) {
		return segmentInfo{}, &CorruptError{file, 0, "the checksum of the segment's header does not match"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > formatVersion {
		return segmentInfo{}, newerVersion(file, uint64(v))
	} else if v != formatVersion || !isZero(b[48:segmentHeader]) {
		return segmentInfo{}, &CorruptError{file, 8, "the header of the segment says something unknown"}
	}
	return segmentInfo{
		sequence:   binary.LittleEndian.Uint64(b[16:]),
		firstBatch: binary.LittleEndian.Uint64(b[24:]),
		store:      raft.StoreID(b[32:48]),
	}, nil
}

func newerVersion(path string, version uint64) error {
	return fmt.Errorf("%s %w (format %d; this program knows formats up to %d)", path, ErrNewerVersion, version, formatVersion)
}

// createSegment makes a segment of the given size, durable with its name. It
// begins with batch, which may be empty.
func createSegment(fsys FS, dir string, info segmentInfo, size int64, batch []byte) error {
	return publish(fsys, dir, segmentTemp, segmentName(info.sequence), func(f File) error {
		begin := append(info.encode(), batch...)
		if _, err := f.WriteAt(begin, 0); err != nil {
			return err
		}
		zeros := make([]byte, min(size, 1<<20))
		for at := int64(len(begin)); at < size; at += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
				return err
			}
		}
		return nil
	})
}

// publish makes a file under a temporary name, lets write fill it, and gives it
// its name once it is durable. Whoever finds the name finds the whole file; a
// crash before that leaves the temporary one, which the next Open removes.
func publish(fsys FS, dir, temp, name string, write func(File) error) error {
	temp, name = filepath.Join(dir, temp), filepath.Join(dir, name)
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// readFile returns what a file holds.
func readFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSegmentBytes {
		return nil, &CorruptError{name, maxSegmentBytes, "it is longer than any file of a data directory"}
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil // a file that got shorter since is judged by what is left
	}
	return b[:n], err
}
