package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes the flock(2) lock of path, creating it, and returns its release. It waits while another process, or
// another goroutine of this one, holds the lock, and calls waiting once before it does. The kernel drops the lock when
// a process dies. Lock files are never deleted: a deleted one could be locked twice.
//
// It polls, because a blocked flock cannot be cancelled.
func lockFile(ctx context.Context, path string, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, storageError(err, "create the cache")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, storageError(err, "open the cache's lock")
	}
	wait := 10 * time.Millisecond
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing drops the lock
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fail(ClassStorage, fmt.Errorf("flock %s: %w", path, err),
				"the cache's file system has no file locks; point SIE_LOCAL_CACHE to a local disk")
		}
		if first && waiting != nil {
			waiting()
		}
		if err := sleep(ctx, wait); err != nil {
			f.Close()
			return nil, contextError(ctx)
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
