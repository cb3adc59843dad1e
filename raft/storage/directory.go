package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"raftkv/raft"
)

// A data directory holds, besides the segments of the log and the snapshots:
const (
	lockName     = "lock"     // held by the process that uses the directory
	identityName = "identity" // whose directory this is; the last file of the first start
	peersName    = "peers"    // which store each other server had

	// Files not yet complete. Whatever has such a name is left over from a crash.
	identityTemp = "identity.tmp"
	peersTemp    = "peers.tmp"
	segmentTemp  = "segment.tmp"
	takenTemp    = "snapshot-taken.tmp"
	receivedTemp = "snapshot-received.tmp"
)

var tempNames = []string{identityTemp, peersTemp, segmentTemp, takenTemp, receivedTemp}

// listDir returns the names in dir; none if it does not exist.
func listDir(fsys FS, dir string) ([]string, error) {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// checkNames is ErrNotDataDir if dir is somebody else's: it holds files, but no
// identity file and others than ours.
func checkNames(dir string, names []string) error {
	if slices.Contains(names, identityName) {
		return nil
	}
	for _, name := range names {
		_, isSegment := segmentSequence(name)
		_, isSnapshot := snapshotIndex(name)
		if !isSegment && !isSnapshot && name != lockName && name != peersName && !slices.Contains(tempNames, name) {
			return fmt.Errorf("directory %s %w (%s)", dir, ErrNotDataDir, name)
		}
	}
	return nil
}

// makeDir makes dir, and first those above it that do not exist. Each is
// durable before anything is put into it.
func makeDir(fsys FS, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	if _, err := fsys.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // it is there, or the next operation says what is wrong
	}
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.Mkdir(dir); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

// syncParents makes the names on the way to dir durable. Only the directory
// right above must allow that; those further up are rarely ours, and not every
// one can be read or synced.
func syncParents(fsys FS, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	_ = syncParents(fsys, parent)
	return fsys.SyncDir(parent)
}

// firstStart makes the files of a new directory. Power may be lost at any step:
// without the identity file, which comes last, the next start begins anew, with
// another store id. With it all is there, so that a file missing later is a
// loss and not a beginning; a server that has forgotten its vote must not start.
func firstStart(fsys FS, dir string, names []string, o Options) error {
	if err := checkUnfinished(fsys, dir, names); err != nil {
		return err
	}
	// The directory, or one above it, may be there only since a first start that
	// was cut short before their names were durable.
	if err := syncParents(fsys, dir); err != nil {
		return err
	}
	return makeFiles(dir, o, o.NewStoreID(), nil)
}

// makeFiles makes all files of a new directory, with a first batch in its log.
func makeFiles(dir string, o Options, store raft.StoreID, batch []byte) error {
	first := segmentInfo{sequence: 1, firstBatch: 1, store: store}
	size := int64(max(o.SegmentBytes, segmentHeader+len(batch)))
	if err := createSegment(o.FS, dir, first, size, batch); err != nil {
		return err
	}
	if err := publishText(o.FS, dir, peersTemp, peersName, encodePeers(store, nil)); err != nil {
		return err
	}
	return publishText(o.FS, dir, identityTemp, identityName, o.Identity.encode(store))
}

// checkUnfinished makes sure that a directory without an identity file holds
// nothing that could be lost: no record, no peer, no snapshot. (A snapshot that is
// not finished is what a Restore that was cut short leaves.)
func checkUnfinished(fsys FS, dir string, names []string) error {
	missing := &CorruptError{filepath.Join(dir, identityName), 0, "it is missing, but the other files are in use"}
	if len(snapshotIndexes(names)) > 0 || slices.Contains(names, takenTemp) {
		return missing
	}
	for _, sequence := range segmentSequences(names) {
		if sequence != 1 {
			return missing
		}
		file := filepath.Join(dir, segmentName(sequence))
		b, err := readFile(fsys, file)
		if err != nil {
			return err
		}
		if _, err := parseSegment(file, b); err != nil {
			return err
		}
		if !isZero(b[segmentHeader:]) {
			return missing
		}
	}
	if slices.Contains(names, peersName) {
		file := filepath.Join(dir, peersName)
		b, err := readFile(fsys, file)
		if err != nil {
			return err
		}
		_, known, err := parsePeers(file, b)
		if err != nil {
			return err
		}
		if len(known) > 0 {
			return missing
		}
	}
	return nil
}

func removeTemps(fsys FS, dir string, names []string) error {
	for _, name := range tempNames {
		if slices.Contains(names, name) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func publishText(fsys FS, dir, temp, name string, text []byte) error {
	return publish(fsys, dir, temp, name, func(f File) error {
		_, err := f.WriteAt(text, 0)
		return err
	})
}

// ReadIdentity returns whose data directory dir is, without taking its lock. The
// error is fs.ErrNotExist (errors.Is) if no server was ever started there. A nil
// fsys is the operating system's.
func ReadIdentity(dir string, fsys FS) (Identity, error) {
	if fsys == nil {
		fsys = OSFS{}
	}
	names, err := listDir(fsys, dir)
	if err == nil && !slices.Contains(names, identityName) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Identity{}, fmt.Errorf("data directory %s: %w", dir, err)
	}
	id, _, err := readIdentity(fsys, dir)
	return id, err
}

// readIdentity and readPeers read the two text files, which are never missing
// after the first start.

func readIdentity(fsys FS, dir string) (Identity, raft.StoreID, error) {
	file := filepath.Join(dir, identityName)
	b, err := readFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		err = &CorruptError{file, 0, "it is missing"}
	}
	if err != nil {
		return Identity{}, raft.StoreID{}, err
	}
	return parseIdentity(file, b)
}

func readPeers(fsys FS, dir string, store raft.StoreID) (map[raft.ServerID]knownStore, error) {
	file := filepath.Join(dir, peersName)
	b, err := readFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		err = &CorruptError{file, 0, "it is missing"}
	}
	if err != nil {
		return nil, err
	}
	owner, known, err := parsePeers(file, b)
	if err != nil {
		return nil, err
	}
	if owner != store {
		return nil, &CorruptError{file, 0, "it belongs to another data directory"}
	}
	return known, nil
}
