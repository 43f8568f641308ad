package hub

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/lockorder"
)

// useLock is the lock that says who uses a repository: shared by everyone who does, in any process,
// and taken alone by whoever removes it.
func useLock(cacheDir, repoFolder string) string {
	return filepath.Join(cacheDir, ".locks", repoFolder, "sie-use.lock")
}

// hold keeps a repository from being removed. A nil hold holds nothing.
type hold struct {
	lock   *lock
	record string // the repository's access record
	once   sync.Once
}

// holdRepo holds the repository until release, waiting for a removal under way. A cache that cannot
// be written to gives nil: nothing can be removed there either.
func (k *locks) holdRepo(ctx context.Context, cacheDir, repoFolder string) *hold {
	lockorder.None("waiting for a removal")
	f, err := openLock(useLock(cacheDir, repoFolder))
	if err != nil {
		return nil
	}
	held, err := k.try(f, false)
	for held == nil {
		if err != nil || sleep(ctx, 10*time.Millisecond) != nil {
			f.Close()
			return nil
		}
		held, err = k.try(f, false)
	}
	h := &hold{lock: held, record: accessRecord(filepath.Join(cacheDir, repoFolder))}
	touch(h.record)
	return h
}

// release drops the hold, after noting that the repository was in use until now.
func (h *hold) release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		touch(h.record)
		h.lock.release()
	})
}

// accessRecord is the file whose modification time is the last use of a repository. Only
// repositories that this package downloaded have one, and only those are ever removed.
func accessRecord(repoDir string) string { return filepath.Join(repoDir, ".sie", "used") }

// touch notes a use now, of a repository that has a record.
func touch(record string) {
	now := time.Now()
	_ = os.Chtimes(record, now, now)
}

// createRecord gives a repository its record, at the start of a download: what the disk gets from
// then on is ours.
func createRecord(record string) error {
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(record, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK, 0o644) // it may be a pipe
	if err != nil {
		return err
	}
	touch(record)
	return f.Close()
}
