package kvservice

import (
	"strings"
	"sync/atomic"
	"time"

	"raftkv/raft/storage"
)

// slowDisk is the real file system with slow disks.
type slowDisk struct {
	storage.OSFS
	nanosPerSync atomic.Int64
	nanosPerKiB  atomic.Int64 // written

	// hang, if not nil, is what a sync of a file with this in its name waits for.
	hang atomic.Pointer[hanging]
}

type hanging struct {
	name string
	met  atomic.Bool // somebody waits
	over chan struct{}
}

func (d *slowDisk) hangOn(name string) *hanging {
	h := &hanging{name: name, over: make(chan struct{})}
	d.hang.Store(h)
	return h
}

func (d *slowDisk) wrap(f storage.File, name string, err error) (storage.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d, name}, nil
}

func (d *slowDisk) OpenWrite(name string) (storage.File, error) {
	f, err := d.OSFS.OpenWrite(name)
	return d.wrap(f, name, err)
}

func (d *slowDisk) Create(name string) (storage.File, error) {
	f, err := d.OSFS.Create(name)
	return d.wrap(f, name, err)
}

type slowFile struct {
	storage.File
	disk *slowDisk
	name string
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	<-time.After(time.Duration(f.disk.nanosPerKiB.Load() * int64(len(p)) >> 10))
	return f.File.WriteAt(p, off)
}

func (f slowFile) Sync() error {
	if h := f.disk.hang.Load(); h != nil && strings.Contains(f.name, h.name) {
		h.met.Store(true)
		<-h.over
	}
	<-time.After(time.Duration(f.disk.nanosPerSync.Load()))
	return f.File.Sync()
}
