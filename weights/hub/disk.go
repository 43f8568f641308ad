package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// disk keeps the cache's disk from filling up.
//
// It removes whole repositories, the one used longest ago first, and only such that this package downloaded: what a
// Python tool or a person put into the cache is theirs, and may not be there to be downloaded again. Nothing is removed
// that is in use (hold), being downloaded, or locked by a Python tool, and nothing at all but to make room for a
// download.
type disk struct {
	dir       string
	threshold float64 // share of the disk in use above which repositories are removed; 0: never
	space     func(dir string) (free, total int64, ok bool)
	log       *slog.Logger
}

// makeRoom removes repositories until needed more bytes leave the disk below the threshold, or nothing more can go.
func (d disk) makeRoom(ctx context.Context, needed int64) error {
	if d.threshold == 0 || !d.above(needed) {
		return nil
	}
	// One process removes at a time, so that two do not both remove for the same need.
	release, err := lockFile(ctx, filepath.Join(d.dir, ".locks", "sie-evict.lock"), nil)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return nil // a file system without locks: nobody can say what is in use
	}
	defer release()
	d.emptyTrash()
	for _, c := range d.candidates() {
		if !d.above(needed) {
			return nil
		}
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		removed, err := d.remove(c.folder)
		switch {
		case err != nil:
			d.log.Warn("model cache: cannot remove a model", "folder", c.folder, "error", err)
		case removed:
			d.log.Info("model cache: removed the model used longest ago, to make room on the disk", "folder", c.folder,
				"last_used", c.used.Format(time.RFC3339))
		}
	}
	if d.above(needed) {
		d.log.Warn("model cache: the disk stays fuller than wanted; nothing more can be removed", "dir", d.dir,
			"threshold_percent", 100*d.threshold)
	}
	return nil
}

// above reports whether the disk with needed more bytes on it is fuller than the threshold.
func (d disk) above(needed int64) bool {
	free, total, ok := d.space(d.dir)
	return ok && total > 0 && float64(total-free+needed) > d.threshold*float64(total)
}

type candidate struct {
	folder string
	used   time.Time
}

// candidates are the repositories that may be removed, the one used longest ago first.
func (d disk) candidates() []candidate {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	var out []candidate
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "models--") {
			continue
		}
		repo := repoCache{filepath.Join(d.dir, e.Name())}
		info, err := os.Stat(accessRecord(repo.dir))
		if err == nil && repo.ours() {
			out = append(out, candidate{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return a.used.Compare(b.used) })
	return out
}

// ours reports that every snapshot of the repository was downloaded, or completed, by this package.
func (c repoCache) ours() bool {
	entries, err := os.ReadDir(filepath.Join(c.dir, "snapshots"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) // a download that was interrupted
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !exists(c.manifest(e.Name())) })
}

// trash is where a repository goes in one step before its files are deleted: no half of it is ever seen. Tools that look
// through the cache skip .locks.
const trash = ".locks/.sie-trash"

// remove removes a repository, unless somebody uses it.
func (d disk) remove(folder string) (bool, error) {
	locks := filepath.Join(d.dir, ".locks", folder)
	entries, err := os.ReadDir(locks)
	if err != nil {
		return false, err
	}
	names := []string{filepath.Base(useLock(d.dir, folder))}
	for _, e := range entries { // those of downloads, ours and of Python tools
		if strings.HasSuffix(e.Name(), ".lock") && e.Name() != names[0] {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(locks, name), os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				return false, nil
			}
			return false, fmt.Errorf("lock %s: %w", name, err)
		}
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

// emptyTrash deletes what a killed process left half deleted.
func (d disk) emptyTrash() {
	if err := os.RemoveAll(filepath.Join(d.dir, trash)); err != nil {
		d.log.Warn("model cache: cannot empty the trash", "dir", filepath.Join(d.dir, trash), "error", err)
	}
}

// diskSpace is the size of the disk of dir and what of it this user may still fill.
func diskSpace(dir string) (free, total int64, ok bool) {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0, 0, false
	}
	block := uint64(stat.Bsize)
	free = int64(min(stat.Bavail, 1<<40) * block)
	// What is kept for root counts neither as free nor as part of the disk, as in df.
	return free, int64(min(stat.Blocks-stat.Bfree+stat.Bavail, 1<<40) * block), true
}
