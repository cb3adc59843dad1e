package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// A snapshot is one file, named snapshot- and its index in 20 digits, so that the
// newest comes last in any listing. It begins with a header, all numbers little
// endian:
//
//	offset  0      8        12      16     24    32             40
//	        magic  format   header  index  term  index of the   bytes of
//	               version  CRC                  configuration  data
//
//	        48       52             56        72             72 + its length
//	        data     length of the  store id  configuration  data, to the end
//	        CRC      configuration                           of the file
//
// The file is made under a temporary name and gets its own when all of it is
// durable. If it is damaged, it is never for a loss of power.
const (
	snapshotMagic  = "raftkvsn"
	snapshotHeader = 72 // bytes, without the configuration

	maxConfigurationBytes = 1 << 20 // so that a foreign file cannot claim all memory

	// How many bytes may wait for a sync. Syncing as the bytes come keeps the last
	// sync short, and those of Save, which the disk makes wait behind these.
	unsyncedBytes = 1 << 20
)

func snapshotName(index raft.Index) string { return fmt.Sprintf("snapshot-%020d", index) }

// snapshotIndex is the inverse of snapshotName.
func snapshotIndex(name string) (index raft.Index, ok bool) {
	if _, err := fmt.Sscanf(name, "snapshot-%d", &index); err != nil {
		return 0, false
	}
	return index, index != 0 && snapshotName(index) == name
}

// snapshotIndexes returns the indexes of the snapshots among names, in order.
func snapshotIndexes(names []string) []raft.Index {
	var indexes []raft.Index
	for _, name := range names {
		if index, ok := snapshotIndex(name); ok {
			indexes = append(indexes, index)
		}
	}
	slices.Sort(indexes)
	return indexes
}

func encodeSnapshotHeader(s raft.Snapshot, store raft.StoreID) []byte {
	h := make([]byte, snapshotHeader)
	copy(h, snapshotMagic)
	binary.LittleEndian.PutUint32(h[8:], formatVersion)
	binary.LittleEndian.PutUint64(h[16:], uint64(s.Index))
	binary.LittleEndian.PutUint64(h[24:], uint64(s.Term))
	binary.LittleEndian.PutUint64(h[32:], uint64(s.ConfigurationIndex))
	binary.LittleEndian.PutUint64(h[40:], s.Size)
	binary.LittleEndian.PutUint32(h[48:], s.Checksum)
	copy(h[56:], store[:])
	h = s.Configuration.AppendTo(h)
	binary.LittleEndian.PutUint32(h[52:], uint32(len(h)-snapshotHeader))
	binary.LittleEndian.PutUint32(h[12:], headerCRC(h))
	return h
}

// storedSnapshot is a snapshot with its file.
type storedSnapshot struct {
	raft.Snapshot
	file    string // its path
	dataAt  int64  // where the data begin in it
	readers int    // how many have it open; FileStorage.mu guards it
}

// readSnapshotHeader reads the header of a snapshot and holds it against the name
// and the size of the file.
func readSnapshotHeader(fsys FS, dir string, index raft.Index, store raft.StoreID) (*storedSnapshot, error) {
	file := filepath.Join(dir, snapshotName(index))
	damaged := func(at int64, reason string) (*storedSnapshot, error) {
		return nil, &CorruptError{file, at, reason}
	}
	f, err := fsys.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	h := make([]byte, min(size, snapshotHeader))
	if err := readFull(f, h, 0); err != nil {
		return nil, err
	}
	if len(h) < snapshotHeader || string(h[:8]) != snapshotMagic {
		return damaged(0, "it does not begin like a snapshot")
	}
	length := int64(binary.LittleEndian.Uint32(h[52:]))
	if length > min(size-snapshotHeader, maxConfigurationBytes) {
		return damaged(52, "the file ends within its header")
	}
	h = append(h, make([]byte, length)...)
	if err := readFull(f, h[snapshotHeader:], snapshotHeader); err != nil {
		return nil, err
	}
	if headerCRC(h) != binary.LittleEndian.Uint32(h[12:]) {
		return damaged(0, "the checksum of the snapshot's header does not match")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v > formatVersion {
		return nil, newerVersion(file, uint64(v))
	}
	s := &storedSnapshot{
		Snapshot: raft.Snapshot{
			Index:              raft.Index(binary.LittleEndian.Uint64(h[16:])),
			Term:               raft.Term(binary.LittleEndian.Uint64(h[24:])),
			ConfigurationIndex: raft.Index(binary.LittleEndian.Uint64(h[32:])),
			Size:               binary.LittleEndian.Uint64(h[40:]),
			Checksum:           binary.LittleEndian.Uint32(h[48:]),
		},
		file:   file,
		dataAt: snapshotHeader + length,
	}
	if s.Configuration, err = raft.DecodeConfiguration(h[snapshotHeader:]); err != nil {
		return damaged(snapshotHeader, "the configuration cannot be decoded")
	}
	switch {
	case raft.StoreID(h[56:72]) != store:
		return damaged(56, "it belongs to another data directory")
	case s.Index != index:
		return damaged(16, fmt.Sprintf("it is snapshot %d under another name", s.Index))
	case s.Size != uint64(size-s.dataAt):
		return damaged(min(size, s.dataAt), fmt.Sprintf("there are %d bytes of data and not %d", size-s.dataAt, s.Size))
	}
	return s, nil
}

// verify reads the data and compares the checksum.
func (s *storedSnapshot) verify(fsys FS) error {
	f, err := fsys.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := snapshotReader{snapshot: s, file: f}
	_, err = io.CopyBuffer(io.Discard, &r, make([]byte, min(s.Size+1, unsyncedBytes)))
	return err
}

// snapshotReader reads the data of a snapshot from beginning to end, and at the
// end tells whether they were right.
type snapshotReader struct {
	snapshot *storedSnapshot
	file     File
	at       uint64
	sum      checksum
}

func (r *snapshotReader) Read(b []byte) (int, error) {
	s := r.snapshot
	b = b[:min(uint64(len(b)), s.Size-r.at)]
	if len(b) == 0 && r.at == s.Size {
		if uint32(r.sum) != s.Checksum {
			return 0, &CorruptError{s.file, s.dataAt, "the checksum of the snapshot does not match"}
		}
		return 0, io.EOF
	}
	if err := readFull(r.file, b, s.dataAt+int64(r.at)); err != nil {
		return 0, err
	}
	r.sum = checksum(r.sum.of(b))
	r.at += uint64(len(b))
	return len(b), nil
}

// readFull fills b from f at an offset.
func readFull(f File, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// unfinishedSnapshot is a snapshot that is being written under a temporary name.
type unfinishedSnapshot struct {
	fs       FS
	path     string
	file     File // nil when it is closed
	store    raft.StoreID
	snapshot raft.Snapshot // Size and Checksum tell what has been written
	dataAt   int64
	unsynced int // bytes
}

// createSnapshotFile begins to write a snapshot. The header, which tells size and
// checksum, comes last and goes in front.
func createSnapshotFile(fsys FS, path string, s raft.Snapshot, store raft.StoreID) (*unfinishedSnapshot, error) {
	file, err := fsys.Create(path)
	if err != nil {
		return nil, err
	}
	s.Size, s.Checksum = 0, 0
	return &unfinishedSnapshot{
		fs: fsys, path: path, file: file, store: store, snapshot: s,
		dataAt: int64(len(encodeSnapshotHeader(s, store))),
	}, nil
}

// Write adds to the data.
func (u *unfinishedSnapshot) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if n, err := u.file.WriteAt(b, u.dataAt+int64(u.snapshot.Size)); err != nil {
		return n, err
	}
	u.snapshot.Size += uint64(len(b))
	u.snapshot.Checksum = checksum(u.snapshot.Checksum).of(b)
	if u.unsynced += len(b); u.unsynced < unsyncedBytes {
		return len(b), nil
	}
	u.unsynced = 0
	return len(b), u.file.Sync()
}

// finish makes the file complete and durable, under its temporary name.
func (u *unfinishedSnapshot) finish() error {
	if _, err := u.file.WriteAt(encodeSnapshotHeader(u.snapshot, u.store), 0); err != nil {
		return err
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	err := u.file.Close()
	u.file = nil
	return err
}

// drop closes and removes the file. If that fails, the next start removes it, or
// the next snapshot is written over it.
func (u *unfinishedSnapshot) drop() {
	u.close()
	_ = u.fs.Remove(u.path)
}

func (u *unfinishedSnapshot) close() {
	if u.file != nil {
		_ = u.file.Close()
		u.file = nil
	}
}
