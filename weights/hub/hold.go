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

// useLock returns the path of the lock that marks a repository as in use. Every user, in any
// process, shares it. A remover takes it exclusively.
func useLock(cacheDir, repoFolder string) string {
	return filepath.Join(cacheDir, ".locks", repoFolder, "sie-use.lock")
}

// hold keeps a repository from being removed. A nil hold keeps nothing.
type hold struct {
	lock   *lock
	record string // the repository's access record
	once   sync.Once
}

// holdRepo holds the repository until release. It waits while the repository is being removed. It
// returns nil when the cache cannot be written to, where nothing can be removed either, when
// locking fails and when ctx ends.
func (k *locks) holdRepo(ctx context.Context, cacheDir, repoFolder string) *hold {
	lockorder.AssertNoneHeld("waiting for a removal")
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

// release ends the hold and records that the repository was in use until now.
func (h *hold) release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		touch(h.record)
		h.lock.release()
	})
}

// accessRecord returns the path of the file whose modification time is the last use of a
// repository. Only repositories that this package downloaded have one, and only those are ever
// removed.
func accessRecord(repoDir string) string { return filepath.Join(repoDir, ".sie", "used") }

// touch records a use now, if the repository has a record.
func touch(record string) {
	now := time.Now()
	_ = os.Chtimes(record, now, now)
}

// createRecord creates a repository's record at the start of a download, which marks the repository
// as this package's own.
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
