package storage

import "io"

// FS is what FileStorage needs of a file system. [OSFS] is the real one;
// internal/simdisk has one that loses power, sectors and directory entries.
//
// A change to a directory (Create, Rename, Remove, Mkdir) is durable only
// after SyncDir of the directory that holds the name, and a file's bytes only
// after its Sync. Until then a loss of power may undo any part of them, in any
// order. Rename replaces an existing file in one step. Errors about missing
// files are fs.ErrNotExist.
type FS interface {
	// Mkdir makes a directory; the one above it must exist.
	Mkdir(dir string) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error

	// Open opens an existing file for reading only.
	Open(name string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(name string) (File, error)
	// Create makes an empty file, or empties an existing one, and opens it for
	// reading and writing.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error

	// Lock takes the lock that a file stands for, without waiting, and makes the
	// file if need be. The lock ends with Close or with the process. It is
	// ErrLocked if somebody else has it.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Offsets and sizes are in bytes.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	Size() (int64, error)

	// Sync makes the file's bytes durable, and its size. After an error it is
	// unknown which bytes are, and a later Sync that succeeds says nothing about
	// them: the operating system may have forgotten that they were unwritten.
	Sync() error
}
