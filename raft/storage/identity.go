package storage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"raftkv/raft"
)

// Identity says which server of which cluster a data directory belongs to. It
// is written at the first start and never changed.
type Identity struct {
	Cluster     raft.ClusterID // see NewIdentity
	ClusterName string
	Server      raft.ServerID
	Members     []Member // the cluster at its first start, sorted by ID; none for a joiner

	// AddedAfter is for a joiner, see raft.Config. It was asked for once, so it does
	// not tell one directory from another.
	AddedAfter raft.Index
}

// Member is a server of a cluster and the address at which the others reach it.
type Member struct {
	ID   raft.ServerID
	Addr string
}

// NewIdentity returns the identity of one of the members. The cluster id is
// made from the name and the member list, so that two clusters on one network
// do not take each other's messages for their own. The order of members does
// not matter.
func NewIdentity(clusterName string, server raft.ServerID, members []Member) Identity {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Addr, b.Addr))
	})
	// With lengths in front, no two different lists give the same bytes.
	h := sha256.New()
	number := func(n uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, n)) }
	text := func(s string) { number(uint64(len(s))); h.Write([]byte(s)) }
	text(clusterName)
	for _, m := range members {
		number(uint64(m.ID))
		text(m.Addr)
	}
	return Identity{
		Cluster:     raft.ClusterID(binary.BigEndian.Uint64(h.Sum(nil))),
		ClusterName: clusterName,
		Server:      server,
		Members:     members,
	}
}

// JoinIdentity returns the identity of a server that is added to a cluster which
// runs already. It knows no members; the log will tell it. For after see
// raft.Config's AddedAfter.
func JoinIdentity(cluster raft.ClusterID, clusterName string, server raft.ServerID, after raft.Index) Identity {
	return Identity{Cluster: cluster, ClusterName: clusterName, Server: server, AddedAfter: after}
}

// FirstConfiguration is what a cluster begins with: all its first members vote.
// A server that is to join one knows of none, and waits.
func FirstConfiguration(members []Member) raft.Configuration {
	var voters []raft.ServerID
	var addresses []raft.Address
	for _, m := range members {
		voters = append(voters, m.ID)
		addresses = append(addresses, raft.Address{ID: m.ID, Addr: m.Addr})
	}
	return raft.NewConfiguration(voters...).WithAddresses(addresses...)
}

// check refuses an identity that no server can have.
func (id Identity) check() error {
	if id.Server == raft.None {
		return fmt.Errorf("%w: server id 0 means nobody; ids start at 1", raft.ErrConfig)
	}
	found := len(id.Members) == 0 // a joiner
	for i, m := range id.Members {
		if m.ID == raft.None {
			return fmt.Errorf("%w: server id 0 means nobody; ids start at 1", raft.ErrConfig)
		}
		if i > 0 && id.Members[i-1].ID >= m.ID {
			return fmt.Errorf("%w: server %d is in the member list twice, or the list is not sorted", raft.ErrConfig, m.ID)
		}
		found = found || m.ID == id.Server
	}
	if !found {
		return fmt.Errorf("%w: server %d is not in the member list", raft.ErrConfig, id.Server)
	}
	return nil
}

// differs says in what asked is not what is stored; "" if they are the same.
func (id Identity) differs(asked Identity) string {
	switch {
	case id.Server != asked.Server:
		return fmt.Sprintf("it is server %d's, not server %d's", id.Server, asked.Server)
	case id.ClusterName != asked.ClusterName:
		return fmt.Sprintf("its cluster is %q, not %q", id.ClusterName, asked.ClusterName)
	case !slices.Equal(id.Members, asked.Members):
		return fmt.Sprintf("it was first started with the members %s, not %s", memberList(id.Members), memberList(asked.Members))
	case id.Cluster != asked.Cluster:
		return fmt.Sprintf("its cluster id is %016x, not %016x", uint64(id.Cluster), uint64(asked.Cluster))
	}
	return ""
}

func memberList(members []Member) string {
	if len(members) == 0 {
		return "of a cluster that it joined"
	}
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = fmt.Sprintf("%d=%s", m.ID, m.Addr)
	}
	return strings.Join(texts, ",")
}

// The identity file and the file of known peers are short texts, so that people
// can read them. The first line names the format and the last is a checksum of
// all before it; these two keep their form in every later format. A file must
// be exactly what we would write: parsing is encoding what was understood once
// more, and comparing.
const (
	identityTitle = "raftkv data directory"
	peersTitle    = "raftkv known peers"
)

func (id Identity) encode(store raft.StoreID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, format %d\n", identityTitle, formatVersion)
	fmt.Fprintf(&b, "cluster %016x %q\n", uint64(id.Cluster), id.ClusterName)
	fmt.Fprintf(&b, "server %d\n", id.Server)
	for _, m := range id.Members {
		fmt.Fprintf(&b, "member %d %q\n", m.ID, m.Addr)
	}
	if id.AddedAfter != 0 {
		fmt.Fprintf(&b, "added after %d\n", id.AddedAfter)
	}
	fmt.Fprintf(&b, "store %x\n", store)
	return seal(&b)
}

func parseIdentity(file string, data []byte) (Identity, raft.StoreID, error) {
	lines, err := unseal(file, identityTitle, data)
	if err != nil {
		return Identity{}, raft.StoreID{}, err
	}
	var id Identity
	var store raft.StoreID
	for _, line := range lines {
		key, rest, _ := strings.Cut(line, " ")
		first, second, _ := strings.Cut(rest, " ")
		switch key {
		case "cluster":
			n, _ := strconv.ParseUint(first, 16, 64)
			id.Cluster = raft.ClusterID(n)
			id.ClusterName, _ = strconv.Unquote(second)
		case "server":
			id.Server = parseServer(rest)
		case "member":
			addr, _ := strconv.Unquote(second)
			id.Members = append(id.Members, Member{parseServer(first), addr})
		case "added":
			n, _ := strconv.ParseUint(second, 10, 64)
			id.AddedAfter = raft.Index(n)
		case "store":
			store = parseStore(rest)
		}
	}
	if !bytes.Equal(data, id.encode(store)) {
		return Identity{}, raft.StoreID{}, &CorruptError{file, 0, "it is not an identity of a data directory"}
	}
	return id, store, nil
}

// knownStore is the store of another server, and since when the server with that
// id takes part (raft.Address).
type knownStore struct {
	since raft.Index
	store raft.StoreID
}

// encodePeers encodes which store each other server had. owner is this directory's.
func encodePeers(owner raft.StoreID, known map[raft.ServerID]knownStore) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, format %d\n", peersTitle, formatVersion)
	fmt.Fprintf(&b, "owner %x\n", owner)
	for _, id := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(&b, "server %d %x", id, known[id].store)
		if known[id].since != 0 {
			fmt.Fprintf(&b, " since %d", known[id].since)
		}
		b.WriteByte('\n')
	}
	return seal(&b)
}

func parsePeers(file string, data []byte) (owner raft.StoreID, known map[raft.ServerID]knownStore, err error) {
	lines, err := unseal(file, peersTitle, data)
	if err != nil {
		return raft.StoreID{}, nil, err
	}
	known = map[raft.ServerID]knownStore{}
	for _, line := range lines {
		key, rest, _ := strings.Cut(line, " ")
		first, second, _ := strings.Cut(rest, " ")
		switch key {
		case "owner":
			owner = parseStore(rest)
		case "server":
			store, rest, _ := strings.Cut(second, " ")
			since, _ := strconv.ParseUint(strings.TrimPrefix(rest, "since "), 10, 64)
			known[parseServer(first)] = knownStore{raft.Index(since), parseStore(store)}
		}
	}
	if !bytes.Equal(data, encodePeers(owner, known)) {
		return raft.StoreID{}, nil, &CorruptError{file, 0, "it is not a list of known peers"}
	}
	return owner, known, nil
}

// The two below read what they can; the comparison afterwards finds the rest.

func parseServer(s string) raft.ServerID {
	n, _ := strconv.ParseUint(s, 10, 64)
	return raft.ServerID(n)
}

func parseStore(s string) (store raft.StoreID) {
	b, _ := hex.DecodeString(s)
	copy(store[:], b)
	return store
}

const checksumLine = "crc32c %08x\n"

func seal(b *bytes.Buffer) []byte {
	fmt.Fprintf(b, checksumLine, crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes()
}

// unseal checks the last line and the first, and returns those in between.
func unseal(file, title string, data []byte) (lines []string, err error) {
	last := len(data) - len(fmt.Sprintf(checksumLine, 0))
	if last < 0 || string(data[last:]) != fmt.Sprintf(checksumLine, crc32.Checksum(data[:last], castagnoli)) {
		return nil, &CorruptError{file, int64(max(last, 0)), "the checksum of the file does not match"}
	}
	lines = strings.Split(strings.TrimSuffix(string(data[:last]), "\n"), "\n")
	number, ok := strings.CutPrefix(lines[0], title+", format ")
	version, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return nil, &CorruptError{file, 0, "it does not begin with \"" + title + "\""}
	}
	if version > formatVersion {
		return nil, newerVersion(filepath.Clean(file), version)
	}
	return lines[1:], nil
}
