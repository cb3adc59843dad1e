package kvservice

import (
	"bytes"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"raftkv/api"
	"raftkv/kvservice/machine"
)

func snapshotFile(t *testing.T, body string) (SnapshotHeader, []byte) {
	h := SnapshotHeader{
		Format: snapshotFormat, Cluster: "00000000000000ab", ClusterName: "raftkv", Server: 2, Index: 7, Term: 3,
		Configuration: api.Configuration{Index: 5, Voters: []uint64{1, 2}, Learners: []uint64{4}},
	}
	var file bytes.Buffer
	require.NoError(t, WriteSnapshotFile(&file, h, func(w io.Writer) error {
		_, err := io.WriteString(w, body)
		return err
	}))
	h.Bytes, h.CRC32C = uint64(len(body)), crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return h, file.Bytes()
}

func TestSnapshotFileComesBack(t *testing.T) {
	for _, body := range []string{"", "x", strings.Repeat("long\n", 100_000)} {
		h, file := snapshotFile(t, body)
		got, r, err := ReadSnapshotFile(iotest.OneByteReader(bytes.NewReader(file)))
		require.NoError(t, err)
		require.Equal(t, h, got)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, body, string(data))
	}
}

// The bytes of format 1. People keep such files, so what they hold must stay
// readable, whatever is added later.
func TestGoldenSnapshotFile(t *testing.T) {
	want, err := os.ReadFile("testdata/snapshotfile-1")
	require.NoError(t, err)
	state, err := os.ReadFile("machine/testdata/snapshot-2.bin")
	require.NoError(t, err)
	_, file := snapshotFile(t, string(state))
	require.Equal(t, string(want), string(file))
	h, body, err := ReadSnapshotFile(bytes.NewReader(want))
	require.NoError(t, err)
	require.Equal(t, "raftkv", h.ClusterName)
	m, err := machine.ReadSnapshot(body)
	require.NoError(t, err)
	require.Equal(t, 4, m.Keys())
}

// Wherever a file is cut, and whichever byte of the snapshot is changed, it is
// not taken for a whole one.
func TestSnapshotFileDamaged(t *testing.T) {
	_, file := snapshotFile(t, "some state of a store")
	read := func(file []byte) error {
		_, r, err := ReadSnapshotFile(bytes.NewReader(file))
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	}
	require.NoError(t, read(file))
	body := bytes.IndexByte(file, '\n') + 1
	for n := range file {
		want := ErrNoSnapshotFile
		if n >= body {
			want = ErrDamagedSnapshotFile
			changed := bytes.Clone(file)
			changed[n] ^= 1
			require.ErrorIs(t, read(changed), ErrDamagedSnapshotFile, "byte %d", n)
		}
		require.ErrorIs(t, read(file[:n]), want, "cut at %d", n)
	}
	require.ErrorIs(t, read(append(bytes.Clone(file), 'x')), ErrDamagedSnapshotFile)
	newer := read(bytes.Replace(file, []byte("snapshot-1"), []byte("snapshot-2"), 1))
	require.ErrorIs(t, newer, ErrNoSnapshotFile)
	require.ErrorContains(t, newer, `its format is "raftkv-snapshot-2" and this program knows "raftkv-snapshot-1"; use a newer raftkv`)
	require.ErrorIs(t, read(make([]byte, 200<<10)), ErrNoSnapshotFile)
}
