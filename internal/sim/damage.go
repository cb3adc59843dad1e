package sim

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raftkv/raft"
	"raftkv/raft/storage"
)

// What befalls a disk beyond a loss of power: it is full, it has rotted, or it
// is another one.

// fill leaves hardly any room. Segments are made in full, so a server notices
// when it begins the next one, or when it writes down whom it has met: it stops.
// It may start, and stops again, until somebody has made room.
func (s *simulation) fill(victim *node, lasts time.Duration, random *source) {
	files := victim.disk.files
	files.SetLimit(files.Used() + int64(random.below(1<<10)))
	s.because("server %d's disk is full for %v", victim.id, lasts)
	over := s.watcher.network(fmt.Sprintf("server %d's disk is full", victim.id), []raft.ServerID{victim.id}, nil)
	s.atEnd(lasts, func() { files.SetLimit(0); over() })
	s.note(victim, "has a full disk")
	s.count(DiskFull)
	if s.plan.raft.TrailingBytes > 0 && random.oneIn(2) {
		s.askForSnapshot(victim) // somebody hopes that this makes room
	}
}

// damage is a bit that has flipped on a disk.
type damage struct {
	where string
	mend  func() // puts the byte back, as an operator's copy does
}

// rot flips one bit, while the server is down, in something that was synced
// before the last batch was written. Such a disk must be refused. (In the last
// batch nobody can tell rot from a loss of power; docs/storage.md.)
func (s *simulation) rot(victim *node, lasts time.Duration, random *source) {
	if victim.damage != nil || victim.wiped != nil {
		return
	}
	s.stop(victim, random.oneIn(2))
	places := victim.disk.synced()
	if len(places) == 0 {
		return // its very first start was cut short
	}
	place := places[random.below(len(places))]
	offset := int64(random.below(place.bytes))
	d := &damage{
		where: fmt.Sprintf("%s at offset %d", place.path, offset),
		mend:  victim.disk.files.BitFlip(place.path, offset),
	}
	victim.damage = d
	s.because("server %d is down, and a bit flips in %s, for %v", victim.id, d.where, lasts)
	over := s.watcher.network(fmt.Sprintf("server %d's disk has rotted", victim.id), []raft.ServerID{victim.id}, nil)
	s.note(victim, "has a flipped bit in "+d.where)
	s.count(BitFlipped)
	s.after(random.around(s.plan.downTime), func() { s.start(victim) })
	s.atEnd(lasts, func() {
		over()
		s.mend(victim)
		s.start(victim)
	})
}

// mend puts the flipped bit back.
func (s *simulation) mend(n *node) {
	if n.damage != nil {
		n.damage.mend()
		n.damage = nil
		s.note(n, "has its byte back")
	}
}

// mustRefuse starts a server whose disk is damaged. It has to say so and do
// nothing: what it would serve is not what it has promised to keep.
func (s *simulation) mustRefuse(n *node) {
	_, err := n.disk.open()
	n.disk.files.Kill()
	var corrupt *storage.CorruptError
	switch {
	case err == nil:
		s.fail("storage", "server %d starts, though a bit has flipped in %s", n.id, n.damage.where)
	case !errors.As(err, &corrupt):
		s.fail("storage", "server %d, in which a bit has flipped in %s, says: %v", n.id, n.damage.where, err)
	default:
		s.count(RotRefused)
		s.note(n, "refuses to start: its disk is damaged")
	}
}

// place is the beginning of a file.
type place struct {
	path  string
	bytes int
}

// synced returns the parts of a disk that were durable before the last batch was
// written: whole files, and of the segment with the last batch what is before it.
// The server must be down.
func (d *disk) synced() []place {
	var text bytes.Buffer
	if err := storage.Dump(&text, dataDir, d.files); err != nil {
		return nil // there was no first start, or not all of it
	}
	var files []string // the segments
	var last place
	newest := 0
	for line := range strings.Lines(text.String()) {
		if path, ok := strings.CutSuffix(line, ":\n"); ok && strings.HasPrefix(path, dataDir) {
			files = append(files, path)
			continue
		}
		var offset, batch int
		if n, _ := fmt.Sscanf(line, "%d batch %d", &offset, &batch); n == 2 && batch != newest {
			newest, last = batch, place{files[len(files)-1], offset}
		}
	}
	var places []place
	for _, path := range append(files, filepath.Join(dataDir, "identity"), filepath.Join(dataDir, "peers")) {
		switch {
		case newest > 0 && path == last.path:
			places = append(places, last)
		case newest > 0 || !slices.Contains(files, path):
			places = append(places, place{path, len(d.files.ReadFile(path))})
		}
	}
	return places
}

// healDisk gives a server a good disk for ever: its own, with every byte in its
// place, unless that is lost for good.
func (s *simulation) healDisk(n *node) {
	if n.disk.files == nil {
		return
	}
	s.mend(n)
	if n.out {
		s.count(DiskLost)
	} else {
		s.putBack(n)
	}
	n.disk.files.SetLimit(0)
	n.disk.failNext = false
}
