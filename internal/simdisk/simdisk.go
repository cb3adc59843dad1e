// Package simdisk is a disk in memory that behaves as badly as a real one may:
// a loss of power undoes any part of what was not synced, writes and syncs fail,
// the disk fills up, bits flip. It implements [storage.FS], so the storage code
// that runs on it is the one that runs in production.
//
// All chance comes from the random generator given to [New]: the same calls
// with the same seed give the same damage. A Disk must be used by one goroutine
// at a time.
package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"

	"raftkv/raft/storage"
)

// SectorSize is how many bytes a disk writes in one step that cannot tear.
const SectorSize = 512

// ErrPowerOff is the error of everything between the moment that CrashAfter
// chose and the call of Crash or Kill.
var ErrPowerOff = errors.New("simdisk: the power is off")

// Counters says what has happened so far, so that a test can show that it
// reached the interesting cases.
type Counters struct {
	Ops          int // operations that change something, Syncs included
	Writes       int // calls of WriteAt
	Syncs        int // calls of File.Sync
	BytesWritten int64
	LostSectors  int // sectors that a crash took back
	LostNames    int // directory entries that a crash took back
}

// Disk is the file system of one machine. It implements [storage.FS].
type Disk struct {
	rnd   *rand.Rand
	names map[string]*name // by path
	locks map[string]*lock // those that are held
	life  int              // counts the ends of the process; older handles are dead
	count Counters
	limit int64 // of the sum of all file sizes in bytes; 0 if there is none
	fail  struct {
		at  int // the operation that fails, counted as in Counters.Ops; 0 if none
		err error
	}
	offAt int // the operation after which the power goes off; −1 if none
}

var _ storage.FS = (*Disk)(nil)

// New returns an empty disk whose damage is drawn from rnd.
func New(rnd *rand.Rand) *Disk {
	return &Disk{
		rnd:   rnd,
		names: map[string]*name{},
		locks: map[string]*lock{},
		offAt: -1,
	}
}

// Counters returns what has happened so far.
func (d *Disk) Counters() Counters { return d.count }

// FailAfter lets n more operations succeed and the next one fail with err; the
// ones behind it succeed again. A write that fails has written some of its
// sectors. A sync that fails has made some sectors durable, and the disk forgets
// that the others are not: later syncs do not bring them back, as on Linux.
func (d *Disk) FailAfter(n int, err error) {
	d.fail.at, d.fail.err = d.count.Ops+n+1, err
}

// CrashAfter switches the power off after n more operations. Everything fails
// with ErrPowerOff from then on, until Crash switches it on again. (With Kill
// instead of Crash it was only the process that died there.)
func (d *Disk) CrashAfter(n int) { d.offAt = d.count.Ops + n }

// SetLimit bounds the sum of all file sizes; a write that would exceed it fails
// with ENOSPC after it has written what fits. 0 removes the bound.
func (d *Disk) SetLimit(bytes int64) { d.limit = bytes }

// Crash is a loss of power and the next boot. Of every name and every sector
// that was not synced it keeps the old state, the new one, or one in between.
// Locks are free and open files are dead.
func (d *Disk) Crash() {
	d.Kill()
	d.fail.at = 0

	// Names first. In sorted order a directory comes before what is in it.
	keep := d.drawKeep()
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		n := d.names[path]
		now := n.now
		n.settle(keep(len(n.between) + 2))
		if n.now != now {
			d.count.LostNames++
		}
		if n.now == nil || !d.isDir(filepath.Dir(path)) {
			delete(d.names, path)
		}
	}
	// Then what the files hold. One file may have two names after a rename.
	settled := map[*inode]bool{}
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		if f := d.names[path].now; !f.dir && !settled[f] {
			settled[f] = true
			d.count.LostSectors += f.crash(d.drawKeep())
		}
	}
}

// Kill is the end of the process while the machine runs on: nothing is lost,
// not even what was never synced. Locks are free and open files are dead.
func (d *Disk) Kill() {
	d.life++
	d.offAt = -1
	clear(d.locks)
}

// drawKeep returns a function that chooses which of n successive states of
// something survives: 0 is the synced one, n-1 the newest. Everything lost and
// nothing lost are drawn often, because they are the cases people think of.
func (d *Disk) drawKeep() func(n int) int {
	switch d.rnd.IntN(4) {
	case 0:
		return func(int) int { return 0 }
	case 1:
		return func(n int) int { return n - 1 }
	}
	return d.rnd.IntN
}

// BitFlip changes one bit of a file, drawn at random, at the given offset. What
// it returns changes it back, which is for as long as nobody writes there.
func (d *Disk) BitFlip(path string, offset int64) (undo func()) {
	f := d.mustFind(path)
	bit := byte(1) << d.rnd.IntN(8)
	flip := func() {
		f.data[offset] ^= bit
		if int(offset) < len(f.disk) {
			f.disk[offset] ^= bit
		}
	}
	flip()
	return flip
}

// ReadFile returns a copy of what a file holds, or nil if there is none.
func (d *Disk) ReadFile(path string) []byte {
	f := d.find(path)
	if f == nil || f.dir {
		return nil
	}
	return slices.Clone(f.data)
}

// WriteFile gives a file other contents, durably and behind everybody's back.
func (d *Disk) WriteFile(path string, data []byte) {
	f := &inode{data: slices.Clone(data), disk: slices.Clone(data)}
	d.names[path] = &name{now: f, durable: f}
}

// step begins an operation that changes something.
func (d *Disk) step() error {
	if d.isOff() {
		return ErrPowerOff
	}
	d.count.Ops++
	if d.count.Ops == d.fail.at {
		return d.fail.err
	}
	return nil
}

func (d *Disk) isOff() bool { return d.offAt >= 0 && d.count.Ops >= d.offAt }

func (d *Disk) find(path string) *inode {
	if n := d.names[path]; n != nil {
		return n.now
	}
	return nil
}

func (d *Disk) mustFind(path string) *inode {
	f := d.find(path)
	if f == nil {
		panic("simdisk: no file " + path)
	}
	return f
}

// isDir reports whether path is a directory. The root always is one.
func (d *Disk) isDir(path string) bool {
	if filepath.Dir(path) == path {
		return true
	}
	f := d.find(path)
	return f != nil && f.dir
}

// set makes path stand for f; nil removes it.
func (d *Disk) set(path string, f *inode) {
	n := d.names[path]
	if n == nil {
		n = &name{}
		d.names[path] = n
	}
	n.set(f)
}

// Mkdir makes a directory.
func (d *Disk) Mkdir(dir string) error {
	if err := d.step(); err != nil {
		return pathError("mkdir", dir, err)
	}
	if d.find(dir) != nil {
		return pathError("mkdir", dir, fs.ErrExist)
	}
	if !d.isDir(filepath.Dir(dir)) {
		return pathError("mkdir", dir, fs.ErrNotExist)
	}
	d.set(dir, &inode{dir: true})
	return nil
}

// ReadDir returns the names in a directory, sorted.
func (d *Disk) ReadDir(dir string) ([]string, error) {
	if d.isOff() {
		return nil, pathError("readdir", dir, ErrPowerOff)
	}
	if !d.isDir(dir) {
		return nil, pathError("readdir", dir, fs.ErrNotExist)
	}
	var in []string
	for path, n := range d.names {
		if n.now != nil && filepath.Dir(path) == dir {
			in = append(in, filepath.Base(path))
		}
	}
	slices.Sort(in)
	return in, nil
}

// SyncDir makes the names in a directory durable.
func (d *Disk) SyncDir(dir string) error {
	if err := d.step(); err != nil {
		return pathError("sync", dir, err)
	}
	if !d.isDir(dir) {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	for path, n := range d.names {
		if filepath.Dir(path) == dir {
			n.sync()
			if n.now == nil {
				delete(d.names, path)
			}
		}
	}
	return nil
}

// Open opens an existing file for reading.
func (d *Disk) Open(path string) (storage.File, error) { return d.open(path, true) }

// OpenWrite opens an existing file for reading and writing.
func (d *Disk) OpenWrite(path string) (storage.File, error) { return d.open(path, false) }

func (d *Disk) open(path string, readOnly bool) (storage.File, error) {
	if d.isOff() {
		return nil, pathError("open", path, ErrPowerOff)
	}
	f := d.find(path)
	if f == nil || f.dir {
		return nil, pathError("open", path, fs.ErrNotExist)
	}
	return &handle{d, f, path, d.life, readOnly}, nil
}

// Create makes an empty file, or empties an existing one.
func (d *Disk) Create(path string) (storage.File, error) {
	if err := d.step(); err != nil {
		return nil, pathError("create", path, err)
	}
	if !d.isDir(filepath.Dir(path)) || d.isDir(path) {
		return nil, pathError("create", path, fs.ErrNotExist)
	}
	f := d.find(path)
	if f == nil {
		f = &inode{}
		d.set(path, f)
	}
	f.truncate()
	return &handle{d, f, path, d.life, false}, nil
}

// Rename gives a file another name, and replaces the file that has it.
func (d *Disk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return pathError("rename", from, err)
	}
	f := d.find(from)
	if f == nil || !d.isDir(filepath.Dir(to)) {
		return pathError("rename", from, fs.ErrNotExist)
	}
	d.set(to, f)
	d.set(from, nil)
	return nil
}

// Remove removes a file.
func (d *Disk) Remove(path string) error {
	if err := d.step(); err != nil {
		return pathError("remove", path, err)
	}
	if f := d.find(path); f == nil || f.dir {
		return pathError("remove", path, fs.ErrNotExist)
	}
	d.set(path, nil)
	return nil
}

// Lock takes the lock that a file stands for.
func (d *Disk) Lock(path string) (io.Closer, error) {
	if d.isOff() {
		return nil, pathError("lock", path, ErrPowerOff)
	}
	if d.locks[path] != nil {
		return nil, storage.ErrLocked
	}
	if d.find(path) == nil {
		if _, err := d.Create(path); err != nil {
			return nil, err
		}
	}
	l := &lock{d, path}
	d.locks[path] = l
	return l, nil
}

type lock struct {
	disk *Disk
	path string
}

func (l *lock) Close() error {
	if l.disk.locks[l.path] == l { // else a crash has freed it
		delete(l.disk.locks, l.path)
	}
	return nil
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// room returns how many of n more bytes fit on the disk, and ENOSPC if not all do.
func (d *Disk) room(n int64) (int64, error) {
	if d.limit == 0 {
		return n, nil
	}
	if left := max(0, d.limit-d.Used()); left < n {
		return left, syscall.ENOSPC
	}
	return n, nil
}

// Used returns the sum of all file sizes in bytes.
func (d *Disk) Used() int64 {
	used := int64(0)
	seen := map[*inode]bool{}
	for _, name := range d.names {
		if f := name.now; f != nil && !seen[f] {
			seen[f] = true
			used += int64(len(f.data))
		}
	}
	return used
}
