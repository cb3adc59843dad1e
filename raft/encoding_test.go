package raft

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEncoding has the bytes themselves: they are on disks.
func TestEncoding(t *testing.T) {
	for _, c := range []struct {
		entry LogEntry
		hex   string
	}{
		{LogEntry{Term: 1, Command: []byte("x=1")}, "0100000000000000" + "00" + "783d31"},
		{LogEntry{Term: 0x0102030405060708, Command: []byte{0xff}}, "0807060504030201" + "00" + "ff"},
		{LogEntry{Term: 2, Command: []byte{}}, "0200000000000000" + "00"},
		{LogEntry{Term: 3, Kind: EntryEmpty}, "0300000000000000" + "01"},
		{configurationEntry(4, Configuration{
			Voters: []ServerID{1, 200}, OldVoters: []ServerID{1}, Learners: []ServerID{3},
			Addresses: []Address{{1, "a:1", 0}, {200, "b:2", 7}},
		}), "0400000000000000" + "02" + "0201c801" + "0101" + "0103" + "02" + "0100" + "03613a31" + "c80107" + "03623a32"},
	} {
		b := c.entry.AppendTo(nil)
		assert.Equal(t, c.hex, hex.EncodeToString(b))
		assert.Equal(t, len(b), c.entry.EncodedSize())
		back, err := DecodeEntry(b)
		require.NoError(t, err)
		assert.Equal(t, c.entry, back)
		assert.Equal(t, append([]byte("before"), b...), c.entry.AppendTo([]byte("before")))
	}
}

func TestDecodeEntryRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"a short header":  make([]byte, entryHeader-1),
		"an unknown kind": {1, 0, 0, 0, 0, 0, 0, 0, 3},
	} {
		_, err := DecodeEntry(b)
		assert.ErrorIs(t, err, ErrBadEntry, name)
	}
	_, err := DecodeEntry(LogEntry{Kind: EntryConfiguration, Command: []byte{1}}.AppendTo(nil))
	assert.ErrorIs(t, err, ErrBadConfiguration)
}

// FuzzEntry: whatever decodes encodes to the same bytes, and appending to a
// decoded command never writes behind it.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(LogEntry{Term: 1, Command: []byte("x=1")}.AppendTo(nil))
	f.Add(LogEntry{Term: 1 << 63, Kind: EntryEmpty}.AppendTo(nil))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 7})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 255})
	f.Add(configurationEntry(1, NewConfiguration(1, 2)).AppendTo(nil))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 2, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			require.True(t, errors.Is(err, ErrBadEntry) || errors.Is(err, ErrBadConfiguration), err)
			return
		}
		require.Equal(t, b, e.AppendTo(nil))
		require.Equal(t, len(b), e.EncodedSize())
		require.Equal(t, len(e.Command), cap(e.Command))
	})
}
