package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofrs/flock"

	"raftkv/api"
	"raftkv/kvclient"
)

// sessionFormat is the version of the session file. The field Format stays in every
// version, so that an older program can say what it has found.
const sessionFormat = 1

// errNewerSession reports a session file of a newer program.
var errNewerSession = errors.New("a newer raftkv has written it")

// lockRetry is how often a waiting process looks whether the lock is free.
const lockRetry = 10 * time.Millisecond

// sections is the content of a session file: per cluster id, who we are there.
type sections map[string]*section

// section is this directory's session with one cluster. Every command that
// writes is one request of that session.
type section struct {
	ClientID api.ClientID

	// LastRequestID is the newest number used. No number is used twice, even if
	// the process that took it died before it sent anything.
	LastRequestID uint64

	// Pending is the write that has LastRequestID, while its end is not known:
	// written before it is sent, removed when an answer says how it ended.
	Pending *kvclient.Write `json:",omitzero"`
}

// identity returns the identity of the newest write. All earlier ones have
// ended, or were given up: one command writes at a time.
func (s *section) identity() kvclient.Identity {
	return kvclient.Identity{ClientID: s.ClientID, RequestID: s.LastRequestID, AckedThrough: s.LastRequestID - 1}
}

// parseSections reads a session file.
func parseSections(data []byte) (sections, error) {
	var head struct{ Format int }
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Format > sessionFormat {
		return nil, fmt.Errorf("%w: its format is %d and this program knows %d", errNewerSession, head.Format, sessionFormat)
	}
	if head.Format != sessionFormat {
		return nil, fmt.Errorf("its format is %d and this program knows %d", head.Format, sessionFormat)
	}
	var file struct {
		Format   int
		Clusters sections
	}
	if err := json.Unmarshal(data, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	for cluster, s := range file.Clusters {
		switch {
		case s == nil || s.ClientID == "" || len(s.ClientID) > api.MaxClientIDBytes:
			return nil, fmt.Errorf("the section of cluster %s has no ClientID", cluster)
		case s.LastRequestID == 0 || s.LastRequestID+1 == 0:
			return nil, fmt.Errorf("the section of cluster %s has no LastRequestID", cluster)
		case s.Pending != nil && !validWrite(*s.Pending):
			return nil, fmt.Errorf("the section of cluster %s has a pending write that makes no sense", cluster)
		}
	}
	if file.Clusters == nil {
		file.Clusters = sections{}
	}
	return file.Clusters, nil
}

func validWrite(w kvclient.Write) bool {
	switch w.Op {
	case kvclient.OpPut, kvclient.OpAppend, kvclient.OpDelete:
		return w.Key != "" && !w.ExpectAbsent
	case kvclient.OpCAS:
		return w.Key != "" && w.IfVersion == nil
	}
	return false
}

// bytes is the reverse of parseSections.
func (s sections) bytes() ([]byte, error) {
	return json.Marshal(struct {
		Format   int
		Clusters sections
	}{sessionFormat, s}, json.Deterministic(true), jsontext.WithIndent("  "))
}

// readSections reads the session file at path. A file that does not exist is
// empty. It may be read without the lock, because it is only ever replaced as
// a whole.
func readSections(path string) (sections, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return sections{}, nil
	}
	if err != nil {
		return nil, refused("cannot read the session file: %v; use another with --session", err)
	}
	s, err := parseSections(data)
	if errors.Is(err, errNewerSession) {
		return nil, refused("cannot use the session file %s: %v; use that raftkv, or another file with --session", path, err)
	}
	if err != nil {
		return nil, refused("the session file %s is damaged: %v; move it away (a pending write in it is then given up)", path, err)
	}
	return s, nil
}

// sessionFile is a session file that this process holds the lock of.
type sessionFile struct {
	path     string
	sections sections
	lock     *flock.Flock
}

// openSessionFile locks the session file and reads it. It waits for another
// process that holds the lock for up to patience. The lock is a file beside it,
// because the session file itself is replaced at every change.
func openSessionFile(ctx context.Context, path string, patience time.Duration) (*sessionFile, error) {
	f := &sessionFile{path: path, lock: flock.New(path + ".lock")}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	locked, err := f.lock.TryLockContext(ctx, lockRetry)
	if ctx.Err() != nil && !locked {
		return nil, unavailable("another raftkv has held the session file %s for %v; wait for it, or use another with --session", path, patience)
	}
	if err != nil {
		return nil, refused("cannot lock the session file: %v; use another with --session", err)
	}
	if f.sections, err = readSections(path); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close gives the lock back. The operating system does it for a process that dies.
func (f *sessionFile) close() {
	f.lock.Close()
}

// save replaces the file by the present sections and returns when that is
// durable. A process that dies, or a machine that loses power, leaves the old
// content or the new one.
func (f *sessionFile) save() error {
	data, err := f.sections.bytes()
	if err != nil {
		return err
	}
	// One name is enough, because the lock keeps others away; a leftover of a
	// process that died is overwritten.
	temp := f.path + ".tmp"
	if err := writeSynced(temp, append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(temp, f.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.path))
}

func writeSynced(path string, data []byte) error {
	// The pending write may hold a secret, so only its owner may read it.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there, and a rename is journaled
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
