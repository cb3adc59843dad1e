package main

import (
	"os"
	"syscall"
)

// journalBytes is the size of the journal. It is a ring: nobody ever reads it.
const journalBytes = 64 << 20

// journal is a file that was filled with zeros before its first use: then a write
// changes nothing that the file system keeps about the file, and one fdatasync is
// one write to the disk. That is the fastest way to sync that is known here.
type journal struct {
	file *os.File
	at   int64
	sync bool
}

func openJournal(name string, sync bool) (*journal, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < journalBytes; at += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros, at); err != nil {
			return nil, err
		}
	}
	return &journal{file: file, sync: sync}, file.Sync()
}

// append writes b and syncs.
func (j *journal) append(b []byte) error {
	if j.at+int64(len(b)) > journalBytes {
		j.at = 0
	}
	if _, err := j.file.WriteAt(b, j.at); err != nil {
		return err
	}
	j.at += int64(len(b))
	if !j.sync {
		return nil
	}
	return syscall.Fdatasync(int(j.file.Fd()))
}
