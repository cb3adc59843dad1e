package grade

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// What a submission may be. Whoever hands in more has handed in something else.
const (
	maxFile    = 256 << 10 // bytes of a source file
	maxZip     = 32 << 20  // bytes of a zip
	maxEntries = 5000      // files and folders in one submission
)

// Submission is what one student has handed in: a folder or a zip.
type Submission struct {
	Login string // the name of the folder, or of the zip without .zip
	Path  string
}

// Find returns the submissions in a folder in the order of their logins, and the
// names of what is neither a folder nor a zip. What begins with a dot is
// skipped. It is an error if two have one login.
func Find(dir string) (found []Submission, others []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		login, zipped := strings.CutSuffix(e.Name(), ".zip")
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir() && !zipped, e.Type().IsRegular() && zipped:
			found = append(found, Submission{login, filepath.Join(dir, e.Name())})
		default:
			others = append(others, e.Name())
		}
	}
	slices.SortFunc(found, func(a, b Submission) int { return strings.Compare(a.Login, b.Login) })
	for i, s := range found[:max(0, len(found)-1)] {
		if s.Login == found[i+1].Login {
			return nil, nil, fmt.Errorf("%s is there as a folder and as a zip: which one counts?", s.Login)
		}
	}
	return found, others, nil
}

// refusal is a sentence about a submission of which nothing is compiled.
type refusal string

func (r refusal) Error() string { return string(r) }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// entry is a file in a submission.
type entry struct {
	name string // with slashes
	mode fs.FileMode
	size int64 // as far as is known before it is read
	open func() (io.ReadCloser, error)
}

// Take reads the named files of a submission, and no others. A file may stand at
// its name, in dir below it, or below any folder as long as there is only one.
// The error is a sentence for the student if the submission is at fault.
func (s Submission) Take(names []string, dir string) (map[string][]byte, error) {
	entries, done, err := s.entries()
	if err != nil {
		return nil, err
	}
	defer done()
	files := map[string][]byte{}
	for _, name := range names {
		e, err := choose(entries, name, dir)
		if err != nil {
			return nil, err
		}
		if files[name], err = e.read(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// choose returns the entry that is meant by a name.
func choose(entries []entry, name, dir string) (entry, error) {
	var below []entry
	var paths []string
	for _, wanted := range []string{name, path.Join(dir, name)} {
		for _, e := range entries {
			if e.name == wanted {
				return e, nil
			}
		}
	}
	for _, e := range entries {
		if strings.HasSuffix(e.name, "/"+name) {
			below, paths = append(below, e), append(paths, e.name)
		}
	}
	switch len(below) {
	case 0:
		return entry{}, refusef("%s is missing", name)
	case 1:
		return below[0], nil
	}
	slices.Sort(paths)
	return entry{}, refusef("%s is there %d times: %s", name, len(below), strings.Join(paths, ", "))
}

func (e entry) read() ([]byte, error) {
	if !e.mode.IsRegular() {
		return nil, refusef("%s is no regular file", e.name)
	}
	if e.size > maxFile {
		return nil, refusef("%s has %d bytes; at most %d are read", e.name, e.size, maxFile)
	}
	r, err := e.open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1)) // a zip may lie about the size
	if err != nil {
		return nil, refusef("%s cannot be read: %v", e.name, err)
	}
	if len(data) > maxFile {
		return nil, refusef("%s has more than the %d bytes that are read", e.name, maxFile)
	}
	return data, nil
}

// entries lists a submission. The entries can be opened until done is called.
func (s Submission) entries() (entries []entry, done func(), err error) {
	if strings.HasSuffix(s.Path, ".zip") {
		return s.zipEntries()
	}
	root, err := os.OpenRoot(s.Path) // no symbolic link leads out of it
	if err != nil {
		return nil, nil, err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case len(entries) > maxEntries:
			return refusef("the folder has more than %d files", maxEntries)
		case name == ".":
			return nil
		case strings.HasPrefix(path.Base(name), ".") && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		entries = append(entries, entry{name, info.Mode(), info.Size(), func() (io.ReadCloser, error) { return root.Open(name) }})
		return nil
	})
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	return entries, func() { root.Close() }, nil
}

// zipEntries refuses a zip with anything strange in it, whether or not we would
// have read that. Nothing of it is ever written under a name from the zip.
func (s Submission) zipEntries() ([]entry, func(), error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > maxZip {
		return nil, nil, refusef("the zip has %d bytes; at most %d are read", info.Size(), maxZip)
	}
	z, err := zip.OpenReader(s.Path)
	if z == nil || err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, nil, refusef("the zip cannot be read: %v", err)
	}
	entries, err := checkZip(z.File)
	if err != nil {
		z.Close()
		return nil, nil, err
	}
	return entries, func() { z.Close() }, nil
}

func checkZip(files []*zip.File) ([]entry, error) {
	if len(files) > maxEntries {
		return nil, refusef("the zip has more than %d files", maxEntries)
	}
	var entries []entry
	for _, f := range files {
		name := strings.TrimSuffix(f.Name, "/")
		switch {
		case strings.Contains(name, `\`) || !fs.ValidPath(name):
			return nil, refusef("the zip has a path that leads out of it, or none: %q", f.Name)
		case f.Mode()&fs.ModeSymlink != 0:
			return nil, refusef("the zip has a symbolic link: %s", f.Name)
		case f.FileInfo().IsDir(), strings.HasPrefix(name, "__MACOSX/"):
		default:
			entries = append(entries, entry{name, f.Mode(), int64(min(f.UncompressedSize64, 1<<62)), f.Open})
		}
	}
	return entries, nil
}
