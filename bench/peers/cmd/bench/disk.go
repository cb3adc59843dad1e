package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"raftkv/bench/peers/internal/load"
)

const (
	diskSeconds = 2 * time.Second
	diskBlock   = 4096
	diskBytes   = 16 << 20
)

// disk measures what nobody can be quicker than: one thread that writes 4 KiB and
// syncs, in a file that was filled with zeros before, and in one that grows.
func (h *harness) disk(ctx context.Context) error {
	for _, filled := range []bool{true, false} {
		name := filepath.Join(h.scratch, "disk")
		d, err := syncsOf(ctx, name, filled)
		os.Remove(name)
		if err != nil {
			return err
		}
		h.results.Disk = append(h.results.Disk, d)
		h.say("%s", d)
	}
	return nil
}

func syncsOf(ctx context.Context, name string, filled bool) (disk, error) {
	f, err := os.Create(name)
	if err != nil {
		return disk{}, err
	}
	defer f.Close()
	if filled {
		if _, err := f.WriteAt(make([]byte, diskBytes), 0); err != nil {
			return disk{}, err
		}
		if err := f.Sync(); err != nil {
			return disk{}, err
		}
	}
	var took load.Histogram
	block, at, count := make([]byte, diskBlock), int64(0), 0
	began := time.Now()
	for ; time.Since(began) < diskSeconds && ctx.Err() == nil; count++ {
		sent := time.Now()
		if _, err := f.WriteAt(block, at); err != nil {
			return disk{}, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return disk{}, err
		}
		took.Add(time.Since(sent))
		if at += diskBlock; filled && at == diskBytes {
			at = 0
		}
	}
	return disk{
		Filled: filled, SyncsPerSecond: float64(count) / time.Since(began).Seconds(),
		P50Millis: millis(took.Quantile(0.5)), P99Millis: millis(took.Quantile(0.99)),
	}, ctx.Err()
}
