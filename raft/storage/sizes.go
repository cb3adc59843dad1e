package storage

import (
	"path/filepath"
	"strings"
)

// Sizes returns how many bytes the log and the snapshots take on the disk. It
// looks at each file, which are few; one that is removed meanwhile, or cannot be
// read, counts as 0.
func (s *FileStorage) Sizes() (log, snapshots uint64) {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return 0, 0
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "log-"):
			log += s.sizeOf(name)
		case strings.HasPrefix(name, "snapshot-"):
			snapshots += s.sizeOf(name)
		}
	}
	return log, snapshots
}

func (s *FileStorage) sizeOf(name string) uint64 {
	file, err := s.fs.Open(filepath.Join(s.dir, name))
	if err != nil {
		return 0
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil || size < 0 {
		return 0
	}
	return uint64(size)
}
