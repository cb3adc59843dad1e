package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"

	"raftkv/raft/storage"
)

// name is a directory entry: what it stands for now, what a loss of power may
// leave, and what it has stood for in between. nil is nothing.
type name struct {
	now, durable *inode
	between      []*inode
}

func (n *name) set(f *inode) {
	n.between = append(n.between, n.now)
	n.now = f
}

func (n *name) sync() { *n = name{now: n.now, durable: n.now} }

// settle makes the state number i the only one; 0 is the durable one.
func (n *name) settle(i int) {
	states := append(append([]*inode{n.durable}, n.between...), n.now)
	n.now = states[i]
	n.sync()
}

// inode is a file without its name, or a directory.
type inode struct {
	dir bool

	data []byte // what reads see
	disk []byte // what the disk holds for certain

	// The sectors written since the last sync. For a sector written more than
	// once, the contents that it had in between.
	dirty map[int][][]byte
	// The sizes in bytes that the file has had since the last sync.
	sizes []int
}

func (f *inode) truncate() {
	f.sizes = append(f.sizes, len(f.data))
	f.data = nil
}

func (f *inode) write(p []byte, off int64) {
	end := int(off) + len(p)
	if end > len(f.data) {
		f.sizes = append(f.sizes, len(f.data))
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	if f.dirty == nil {
		f.dirty = map[int][][]byte{}
	}
	for s := int(off) / SectorSize; s*SectorSize < end; s++ {
		between, again := f.dirty[s]
		if again {
			between = append(between, slices.Clone(sector(f.data, s)))
		}
		f.dirty[s] = between
	}
	copy(f.data[off:], p)
}

func (f *inode) sync() {
	if len(f.sizes) > 0 {
		f.disk = slices.Clone(f.data)
	} else {
		for s := range f.dirty {
			copy(sector(f.disk, s), sector(f.data, s))
		}
	}
	f.dirty, f.sizes = nil, nil
}

// crash makes the disk's view the only one, after keep has chosen for the size
// and for each unsynced sector which state reached the disk. It returns how
// many sectors are not the newest.
func (f *inode) crash(keep func(n int) int) (lost int) {
	lost = f.writeBack(keep)
	f.data = slices.Clone(f.disk)
	return lost
}

// writeBack lets keep choose what reaches the disk, and forgets the rest.
func (f *inode) writeBack(keep func(n int) int) (lost int) {
	sizes := append(append([]int{len(f.disk)}, f.sizes...), len(f.data))
	size := sizes[keep(len(sizes))]
	disk := make([]byte, size)
	copy(disk, f.disk)
	for _, s := range slices.Sorted(maps.Keys(f.dirty)) {
		between := f.dirty[s]
		switch i := keep(len(between) + 2); {
		case i == len(between)+1:
			copy(sector(disk, s), sector(f.data, s))
		case i > 0:
			copy(sector(disk, s), between[i-1])
			lost++
		default:
			lost++
		}
	}
	f.disk, f.dirty, f.sizes = disk, nil, nil
	return lost
}

// sector returns sector s of b, shorter at the end of b and empty behind it.
func sector(b []byte, s int) []byte {
	lo := min(s*SectorSize, len(b))
	return b[lo:min(lo+SectorSize, len(b))]
}

// handle is an open file. It dies with the process that opened it.
type handle struct {
	disk     *Disk
	file     *inode
	path     string
	life     int
	readOnly bool
}

var _ storage.File = (*handle)(nil)

var errDeadHandle = errors.New("simdisk: this file was opened before the crash")

func (h *handle) check() error {
	if h.disk.isOff() {
		return ErrPowerOff
	}
	if h.life != h.disk.life {
		return errDeadHandle
	}
	return nil
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.check(); err != nil {
		return 0, pathError("read", h.path, err)
	}
	if off >= int64(len(h.file.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.file.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	err := h.check()
	if err == nil && h.readOnly {
		err = fs.ErrPermission
	}
	if err != nil {
		return 0, pathError("write", h.path, err)
	}
	d := h.disk
	n := len(p)
	if err = d.step(); err != nil {
		n = d.rnd.IntN(len(p) + 1)
	} else if grow := off + int64(n) - int64(len(h.file.data)); grow > 0 {
		var fits int64
		fits, err = d.room(grow)
		n -= int(grow - fits)
	}
	d.count.Writes++
	if n > 0 {
		d.count.BytesWritten += int64(n)
		h.file.write(p[:n], off)
	}
	if err != nil {
		return max(n, 0), pathError("write", h.path, err)
	}
	return n, nil
}

func (h *handle) Size() (int64, error) {
	if err := h.check(); err != nil {
		return 0, pathError("stat", h.path, err)
	}
	return int64(len(h.file.data)), nil
}

func (h *handle) Sync() error {
	if err := h.check(); err != nil {
		return pathError("sync", h.path, err)
	}
	h.disk.count.Syncs++
	if err := h.disk.step(); err != nil {
		h.file.writeBack(h.disk.drawKeep())
		return pathError("sync", h.path, err)
	}
	h.file.sync()
	return nil
}

func (h *handle) Close() error { return nil }
