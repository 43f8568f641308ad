package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// disk keeps the cache's disk from becoming too full.
//
// It removes whole repositories, the one used longest ago first, and only those that this package
// downloaded. Files that a Python tool or a person put into the cache are kept, because it may be
// impossible to download them again. A repository is kept while it is in use (hold), downloaded, or
// locked by a Python tool. Repositories are removed only to make room for a download.
type disk struct {
	dir       string
	locks     *locks
	threshold float64 // used fraction of the disk above which repositories are removed; 0: never
	space     func(dir string) (free, total int64, ok bool)
	log       *slog.Logger
	userWait  time.Duration // how long a download waits for models in use, while nothing else is downloaded
}

// freeSpace removes repositories, the one used longest ago first, while over reports that the disk
// is too full. It never removes excluded. stuck lists the repositories whose removal failed. The
// caller holds the lock of removals.
func (d disk) freeSpace(
	ctx context.Context, excluded string, over func() bool,
) (stuck map[string]bool, err error) {
	if !over() || !d.canRemove() {
		return nil, nil
	}
	stuck = make(map[string]bool)
	d.emptyTrash()
	for _, c := range d.candidates(excluded) {
		if !over() {
			break
		}
		if ctx.Err() != nil {
			return nil, contextError(ctx)
		}
		removed, err := d.remove(c.folder)
		if err != nil {
			stuck[c.folder] = true
			d.log.Warn("model cache: cannot remove a model", "folder", c.folder, "error", err)
		}
		if !removed {
			continue
		}
		d.log.Info("model cache: removed the model used longest ago, to make room on the disk",
			"folder", c.folder, "last_used", c.used.Format(time.RFC3339))
		for _, part := range c.parts {
			if part.folder == excluded {
				continue
			}
			if _, err := d.remove(part.folder); err != nil {
				stuck[part.folder] = true
				d.log.Warn("model cache: cannot remove a part of a model",
					"folder", part.folder, "error", err)
			}
		}
	}
	return stuck, nil
}

// canRemove reports whether repositories may be removed. Without locks they may not, because
// nothing tells what other processes use.
func (d disk) canRemove() bool { return d.threshold > 0 && !d.locks.weak.Load() }

type candidate struct {
	folder string
	used   time.Time
	parts  []candidate // the repositories that are removed with it
}

// size returns the bytes of the repository's blobs and of its parts' blobs, finished or not.
func (d disk) size(c candidate) (bytes int64) {
	for _, part := range c.parts {
		bytes += d.size(part)
	}
	entries, _ := os.ReadDir(filepath.Join(d.dir, c.folder, "blobs"))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes
}

// candidates returns the repositories that may be removed, the one used longest ago first, without
// excluded and without parts of others.
func (d disk) candidates(excluded string) []candidate {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	var out []candidate
	owners := d.owners()
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "models--") || e.Name() == excluded ||
			owners[e.Name()] != nil {
			continue
		}
		if c, ok := d.candidate(e.Name()); ok {
			c.parts = d.partsOf(c, owners)
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return a.used.Compare(b.used) })
	return out
}

// candidate returns a repository, and whether this package downloaded it.
func (d disk) candidate(folder string) (candidate, bool) {
	repo := repoCache{filepath.Join(d.dir, folder)}
	info, err := os.Stat(accessRecord(repo.dir))
	if err != nil || !repo.ours() {
		return candidate{}, false
	}
	return candidate{folder: folder, used: info.ModTime()}, true
}

// ours reports whether this package downloaded or completed every snapshot of the repository.
func (c repoCache) ours() bool {
	entries, err := os.ReadDir(filepath.Join(c.dir, "snapshots"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) // a download that was interrupted
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !exists(c.manifest(e.Name())) })
}

// trash is the directory to which remove renames a repository before it deletes the files. No other
// process sees a half-deleted repository. Tools that search the cache skip .locks.
const trash = ".locks/.sie-trash"

// remove deletes a repository unless it is in use. It reports whether the repository is gone.
func (d disk) remove(folder string) (bool, error) {
	locks := filepath.Join(d.dir, ".locks", folder)
	entries, err := os.ReadDir(locks)
	if err != nil {
		return false, err
	}
	names := []string{filepath.Base(useLock(d.dir, folder))}
	for _, e := range entries { // the locks of downloads, by this package and by Python tools
		if strings.HasSuffix(e.Name(), ".lock") && e.Name() != names[0] {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		f, err := openLock(filepath.Join(locks, name))
		if err != nil {
			return false, err
		}
		held, err := d.locks.try(f, true)
		if held == nil || err != nil {
			f.Close()
			return false, err
		}
		defer held.release()
	}
	bin := filepath.Join(d.dir, trash)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return false, err
	}
	gone := filepath.Join(bin, folder+"-"+rand.Text())
	if err := os.Rename(filepath.Join(d.dir, folder), gone); err != nil {
		return false, err
	}
	return true, os.RemoveAll(gone)
}

// emptyTrash deletes the remains that a killed process left in the trash.
func (d disk) emptyTrash() {
	if err := os.RemoveAll(filepath.Join(d.dir, trash)); err != nil {
		d.log.Warn("model cache: cannot empty the trash", "dir", filepath.Join(d.dir, trash), "error", err)
	}
}

// diskSpace returns the size of the disk that holds dir, and the bytes of it that this user may
// still fill.
func diskSpace(dir string) (free, total int64, ok bool) {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0, 0, false
	}
	block := uint64(stat.Bsize)
	free = int64(min(stat.Bavail, 1<<40) * block)
	// Blocks reserved for root count neither as free nor as part of the disk, as in df.
	return free, int64(min(stat.Blocks-stat.Bfree+stat.Bavail, 1<<40) * block), true
}
