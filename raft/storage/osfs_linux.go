package storage

import (
	"os"
	"syscall"
)

// syncData is fdatasync: fsync without the times of the file, which nobody
// needs and which cost a second write to the disk. It does write a size that
// has changed.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
