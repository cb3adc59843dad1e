//go:build !linux

package storage

import "os"

// syncData is File.Sync, which on macOS also empties the cache of the disk.
func syncData(f *os.File) error { return f.Sync() }
