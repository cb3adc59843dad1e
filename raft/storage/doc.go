// Package storage keeps what a Raft server must not forget: its term, its vote
// and its log (Figure 2, "Persistent state on all servers"), and the snapshots
// that stand for the beginning of the log (§7).
//
// [Storage] is the interface; [MapStorage] keeps everything in memory, for
// tests; [FileStorage] keeps it in a directory and survives a loss of power.
// The formats are final and described byte by byte in docs/storage.md.
//
// Reading order:
//
//	storage.go      the interface and the errors
//	mapstorage.go   the obvious way, in memory
//	fs.go           the few file operations that FileStorage needs (osfs.go: the real ones)
//	record.go       how a record becomes bytes and how damage is noticed
//	segment.go      the files that hold records
//	recovery.go     reading a log back: torn tail or corruption?
//	identity.go     whose directory this is
//	directory.go    the files of a directory, the first time and later
//	filestorage.go  Save: one write, one sync
//	snapshotfile.go a snapshot as a file
//	snapshots.go    taking, receiving and reading snapshots
//	compaction.go   forgetting what a snapshot stands for
//	startup.go      log and snapshots become one state
//	open.go         opening a directory
//	restore.go      a new directory from a snapshot
//	sizes.go        how much room all this takes
//	dump.go         a directory as text, for people
//
// The package starts no goroutine and reads no clock, so that internal/sim can
// run the very same code on a simulated disk (internal/simdisk).
package storage
