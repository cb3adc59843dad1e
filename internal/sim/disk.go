package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"raftkv/internal/simdisk"
	"raftkv/raft"
	"raftkv/raft/storage"
)

// disk is what a server has when it comes back: its files, or, where the
// profile has no files, the memory of what was saved.
type disk struct {
	random  *source
	memory  *storage.MapStorage // if there are no files
	files   *simdisk.Disk
	options storage.Options
	storage storage.Storage // open while the server is up

	lives int // how often a server has started with it

	joins      bool       // it belongs to a server that was added to the cluster
	addedAfter raft.Index // see raft.Config

	failNext  bool // the next save fails somewhere
	unsettled bool // a save was cut short since the last start
}

var errDiskFault = errors.New("the simulated disk failed")

// dataDir is the directory on each simulated disk.
const dataDir = "/data"

// newDisk returns server n's empty disk. Each has a name of its own. joins says
// that the server was not there from the beginning.
func (s *simulation) newDisk(n int, name string, joins bool) disk {
	d := disk{random: newSource(s.seed, name), joins: joins}
	if !s.profile.Disks {
		d.memory = storage.NewMapStorage()
		return d
	}
	d.files = simdisk.New(rand.New(&newSource(s.seed, "sectors of "+name).pcg))
	identity := storage.Identity{Cluster: s.cluster, ClusterName: "sim", Server: id(n), Members: s.members}
	if joins {
		identity = storage.JoinIdentity(s.cluster, "sim", id(n), 0)
	}
	d.options = storage.Options{
		FS:           d.files,
		Identity:     identity,
		SegmentBytes: s.plan.segmentBytes,
		NewStoreID: func() (store raft.StoreID) {
			binary.LittleEndian.PutUint64(store[:], d.random.pcg.Uint64())
			return store
		},
	}
	return d
}

// open starts the server's storage and reads what it holds.
func (d *disk) open() (raft.PersistentState, error) {
	if d.files == nil {
		d.storage = d.memory
		return d.memory.Load()
	}
	files, err := storage.Open(dataDir, d.options)
	if err != nil {
		return raft.PersistentState{}, err
	}
	d.storage = files
	d.unsettled = false
	return files.Load()
}

// openAndLook is open, and reports whether the start has cut off a torn tail.
func (d *disk) openAndLook() (saved raft.PersistentState, torn bool, err error) {
	if !d.unsettled {
		saved, err = d.open()
		return saved, false, err
	}
	before := d.lastSegment()
	saved, err = d.open()
	after := d.lastSegment()
	// All that a start writes into a segment is what was there, and zeros.
	same := len(before) == len(after) && len(after) >= 64 && bytes.Equal(before[:64], after[:64])
	return saved, err == nil && same && !bytes.Equal(before, after), err
}

// lastSegment returns what the newest segment of the log holds.
func (d *disk) lastSegment() []byte {
	names, _ := d.files.ReadDir(dataDir)
	for _, name := range slices.Backward(names) {
		if strings.HasPrefix(name, "log-") {
			return d.files.ReadFile(filepath.Join(dataDir, name))
		}
	}
	return nil
}

// save writes and syncs.
func (d *disk) save(save raft.Save) error {
	if d.failNext && d.files != nil {
		d.failNext = false
		d.files.FailAfter(d.random.below(2), errDiskFault)
	}
	err := d.storage.Save(save)
	d.unsettled = d.unsettled || err != nil
	return err
}

// crash ends the server's process, or with power the whole machine's. underWay
// is what was being written, and taking a snapshot, if any: each got as far as it
// happened to get.
func (d *disk) crash(underWay raft.Effects, taking *taking, power bool) {
	goOn := func() { // whether it fails or not, nobody is there to hear it
		_ = d.storage.Save(underWay.Save)
		for _, chunk := range underWay.Receive {
			_ = d.storage.Receive(chunk)
		}
		if taking != nil {
			taking.goOn()
		}
	}
	if underWay.Save.Needed() || len(underWay.Receive) > 0 || taking != nil {
		d.unsettled = d.unsettled || d.files != nil && underWay.Save.Needed()
		switch {
		case power && d.files != nil:
			d.files.CrashAfter(d.random.below(4))
			goOn()
		case d.random.oneIn(2):
			goOn()
		}
	}
	switch {
	case d.files == nil:
	case power:
		d.files.Crash()
	default:
		d.files.Kill()
	}
}
