package storage

import (
	"io"
	"os"
	"runtime"

	"github.com/gofrs/flock"
)

// OSFS is the file system of the operating system. Files and directories are
// made for their owner only.
type OSFS struct{}

var _ FS = OSFS{}

// Mkdir is os.Mkdir.
func (OSFS) Mkdir(dir string) error { return os.Mkdir(dir, 0o700) }

// ReadDir returns the sorted names of os.ReadDir.
func (OSFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// SyncDir is fsync of the directory. Windows cannot sync one and has no need
// to: NTFS writes names to its journal.
func (OSFS) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Open is os.Open.
func (OSFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

// OpenWrite opens an existing file for reading and writing.
func (OSFS) OpenWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

// Create is os.Create.
func (OSFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Rename is os.Rename.
func (OSFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove is os.Remove.
func (OSFS) Remove(name string) error { return os.Remove(name) }

// Lock locks the file with flock (LockFileEx on Windows).
func (OSFS) Lock(name string) (io.Closer, error) {
	l := flock.New(name)
	got, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !got {
		return nil, ErrLocked
	}
	return l, nil
}

type osFile struct{ *os.File }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error { return syncData(f.File) }
