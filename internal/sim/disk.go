package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

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

	failNext bool // the next save fails somewhere
}

var errDiskFault = errors.New("the simulated disk failed")

// dataDir is the directory on each simulated disk.
const dataDir = "/data"

func (s *simulation) newDisk(n int) disk {
	d := disk{random: newSource(s.seed, fmt.Sprint("disk ", n))}
	if !s.profile.Disks {
		d.memory = storage.NewMapStorage()
		return d
	}
	d.files = simdisk.New(rand.New(&newSource(s.seed, fmt.Sprint("sectors ", n)).pcg))
	d.options = storage.Options{
		FS:           d.files,
		Identity:     storage.Identity{Cluster: s.cluster, ClusterName: "sim", Server: id(n), Members: s.members},
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
	return files.Load()
}

// save writes and syncs.
func (d *disk) save(save raft.Save) error {
	if d.failNext && d.files != nil {
		d.failNext = false
		d.files.FailAfter(d.random.below(2), errDiskFault)
	}
	return d.storage.Save(save)
}

// crash ends the server's process, or with power the whole machine's. underWay
// is a save that was not finished; it got as far as it happened to get.
func (d *disk) crash(underWay raft.Save, power bool) {
	if underWay.Needed() {
		switch {
		case power && d.files != nil:
			d.files.CrashAfter(d.random.below(4))
			_ = d.storage.Save(underWay) // fails or not: nobody is there to hear it
		case d.random.oneIn(2):
			_ = d.storage.Save(underWay)
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
