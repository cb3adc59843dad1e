package grade

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".git"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for _, name := range []string{"c.zip", "marks.csv"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	found, others, err := Find(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"marks.csv"}, others)
	require.Equal(t, []Submission{{"a", filepath.Join(dir, "a")}, {"b", filepath.Join(dir, "b")}, {"c", filepath.Join(dir, "c.zip")}}, found)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.zip"), nil, 0o644))
	_, _, err = Find(dir)
	require.ErrorContains(t, err, "a is there as a folder and as a zip")
}

// takeFolder and takeZip hand in the same files in both ways.
func takeFolder(t *testing.T, files map[string]string) (map[string][]byte, error) {
	dir := filepath.Join(t.TempDir(), "student")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return Submission{"student", dir}.Take([]string{"raft.go"}, "part1-election")
}

func takeZip(t *testing.T, write func(z *zip.Writer)) (map[string][]byte, error) {
	var data bytes.Buffer
	z := zip.NewWriter(&data)
	write(z)
	require.NoError(t, z.Close())
	path := filepath.Join(t.TempDir(), "student.zip")
	require.NoError(t, os.WriteFile(path, data.Bytes(), 0o644))
	return Submission{"student", path}.Take([]string{"raft.go"}, "part1-election")
}

func TestTake(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the text of raft.go, or with an ! why not
	}{
		"at the top":     {map[string]string{"raft.go": "ours", "raft_test.go": "theirs", "go.mod": "theirs"}, "ours"},
		"in the part":    {map[string]string{"part1-election/raft.go": "ours", "part2-commands/raft.go": "theirs"}, "ours"},
		"below a folder": {map[string]string{"lab 1/final/raft.go": "ours"}, "ours"},
		"top first":      {map[string]string{"raft.go": "ours", "old/raft.go": "theirs"}, "ours"},
		"twice":          {map[string]string{"old/raft.go": "", "new/raft.go": ""}, "!raft.go is there 2 times: new/raft.go, old/raft.go"},
		"missing":        {map[string]string{"draft.go": ""}, "!raft.go is missing"},
		"huge":           {map[string]string{"raft.go": strings.Repeat("x", maxFile+1)}, "!at most 262144 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder, errFolder := takeFolder(t, c.files)
			inZip, errZip := takeZip(t, func(z *zip.Writer) {
				for name, text := range c.files {
					w, err := z.Create(name)
					require.NoError(t, err)
					_, err = w.Write([]byte(text))
					require.NoError(t, err)
				}
			})
			if why, refused := strings.CutPrefix(c.want, "!"); refused {
				require.ErrorContains(t, errFolder, why)
				require.ErrorAs(t, errFolder, new(refusal))
				require.ErrorContains(t, errZip, why)
				require.ErrorAs(t, errZip, new(refusal))
				return
			}
			require.NoError(t, errFolder)
			require.NoError(t, errZip)
			require.Equal(t, map[string][]byte{"raft.go": []byte(c.want)}, inFolder)
			require.Equal(t, inFolder, inZip)
		})
	}
}

func TestTakeRefusesWhatLeadsOut(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "raft.go")
	require.NoError(t, os.WriteFile(secret, []byte("package secret"), 0o644))
	dir := t.TempDir()
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "raft.go")))
	_, err := Submission{"s", dir}.Take([]string{"raft.go"}, "")
	require.ErrorContains(t, err, "raft.go is no regular file")

	dir = t.TempDir()
	require.NoError(t, os.Symlink(filepath.Dir(secret), filepath.Join(dir, "part1-election")))
	_, err = Submission{"s", dir}.Take([]string{"raft.go"}, "part1-election")
	require.ErrorContains(t, err, "raft.go is missing") // it is not looked for behind a link

	for name, why := range map[string]string{
		"../raft.go": "leads out", "/raft.go": "leads out", `a\..\raft.go`: "leads out", "a/../raft.go": "leads out", "": "leads out",
	} {
		_, err := takeZip(t, func(z *zip.Writer) {
			_, err := z.CreateHeader(&zip.FileHeader{Name: name})
			require.NoError(t, err)
		})
		require.ErrorContains(t, err, why, name)
		require.ErrorAs(t, err, new(refusal))
	}
	_, err = takeZip(t, func(z *zip.Writer) {
		header := &zip.FileHeader{Name: "raft.go"}
		header.SetMode(os.ModeSymlink | 0o777)
		w, err := z.CreateHeader(header)
		require.NoError(t, err)
		_, err = w.Write([]byte(secret))
		require.NoError(t, err)
	})
	require.ErrorContains(t, err, "a symbolic link: raft.go")

	path := filepath.Join(t.TempDir(), "no.zip")
	require.NoError(t, os.WriteFile(path, []byte("PK? no"), 0o644))
	_, err = Submission{"s", path}.Take([]string{"raft.go"}, "")
	require.ErrorContains(t, err, "the zip cannot be read")
	require.ErrorAs(t, err, new(refusal))
}

// A zip of some kilobytes may hold a file of gigabytes, and say that it is small.
func TestTakeIsNotFloodedByAZip(t *testing.T) {
	_, err := takeZip(t, func(z *zip.Writer) {
		w, err := z.Create("raft.go")
		require.NoError(t, err)
		zeros := make([]byte, 1<<20)
		for range 64 {
			_, err = w.Write(zeros)
			require.NoError(t, err)
		}
	})
	require.ErrorContains(t, err, "at most 262144 are read")
}
