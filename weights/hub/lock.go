package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"

	"golang.org/x/sys/unix"
)

// locks takes the flock(2) locks of a cache. The kernel releases a lock when its process dies. Lock
// files are never deleted, because two processes could then each lock a file of that name.
//
// Some network file systems have no locks. There the locks work within this process only. Other
// processes are kept apart in other ways: the names of unfinished files contain a name of this
// process (processSuffix), and nothing is removed to make room. locks is safe for concurrent use.
type locks struct {
	flock func(fd, how int) error // unix.Flock
	log   *slog.Logger

	weak atomic.Bool // the file system has no locks
}

func newLocks(log *slog.Logger) *locks { return &locks{flock: unix.Flock, log: log} }

// lock is a lock that is held.
type lock struct {
	file  *os.File // closing it drops the lock
	inner string   // path in processLocks, "" where the kernel holds the lock
	alone bool
}

func (l *lock) release() {
	if l.inner != "" {
		processLocks.release(l.inner, l.alone)
	}
	l.file.Close()
}

// openLock opens the file of a lock and creates it and its directory. The caller closes it.
func openLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
}

// try takes the lock of f, shared or alone, and then owns f. It returns nil when another holder
// prevents that; the caller still owns f then.
func (k *locks) try(f *os.File, alone bool) (*lock, error) {
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for !k.weak.Load() {
		switch err := k.flock(int(f.Fd()), how); {
		case err == nil:
			return &lock{file: f}, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, nil
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTSUP),
			errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			if !k.weak.Swap(true) {
				k.log.Warn(
					"model cache: its file system has no locks, so nothing is removed to make room, and a download does not go on where "+
						"another process stopped", "dir", filepath.Dir(f.Name()), "error", err)
			}
		default:
			return nil, fmt.Errorf("flock %s: %w", f.Name(), err)
		}
	}
	if !processLocks.try(f.Name(), alone) {
		return nil, nil
	}
	return &lock{file: f, inner: f.Name(), alone: alone}, nil
}

// processSuffix returns a part of the names of unfinished files. It is "" where locks protect them
// from other processes.
func (k *locks) processSuffix() string {
	if k.weak.Load() {
		return "." + processName
	}
	return ""
}

// partial returns the path of a blob's unfinished file.
func (k *locks) partial(blob string) string { return blob + k.processSuffix() + ".incomplete" }

// processName distinguishes this process from all others on all machines.
var processName = rand.Text()

// take takes the lock of path exclusively and returns its release. It waits while another process
// or goroutine holds the lock, and calls waiting once before it waits. It polls, because a blocked
// flock cannot be cancelled.
func (k *locks) take(ctx context.Context, path string, waiting func()) (release func(), err error) {
	lockorder.AssertNoneHeld("waiting for a lock of the cache")
	f, err := openLock(path)
	if err != nil {
		return nil, storageError(err, "open the cache's lock")
	}
	wait := 10 * time.Millisecond
	for first := true; ; first = false {
		held, err := k.try(f, true)
		if held != nil {
			return held.release, nil
		}
		if err != nil {
			f.Close()
			return nil, fail(ClassStorage, err,
				"the cache cannot be locked; point SIE_LOCAL_CACHE to a local disk")
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

// processLocks holds the locks of this process on file systems that have none.
var processLocks inProcessLocks

type inProcessLocks struct {
	mu   lockorder.Mutex[lockorder.InProcess]
	held map[string]int // by path: the number of shared holders, or -1 for an exclusive one
}

func (l *inProcessLocks) try(path string, alone bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]int)
	}
	switch n := l.held[path]; {
	case n < 0 || alone && n > 0:
		return false
	case alone:
		l.held[path] = -1
	default:
		l.held[path]++
	}
	return true
}

func (l *inProcessLocks) release(path string, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[path]--; alone || l.held[path] == 0 {
		delete(l.held, path)
	}
}
