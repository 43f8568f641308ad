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

// disk keeps the cache's disk from filling up.
//
// It removes whole repositories, the one used longest ago first, and only such that this package
// downloaded: what a Python tool or a person put into the cache is theirs, and may not be there to
// be downloaded again. Nothing is removed that is in use (hold), being downloaded, or locked by a
// Python tool, and nothing at all but to make room for a download.
type disk struct {
	dir       string
	locks     *locks
	threshold float64 // share of the disk in use above which repositories are removed; 0: never
	space     func(dir string) (free, total int64, ok bool)
	log       *slog.Logger
	patience  time.Duration // how long a download waits for models in use, while nothing else is downloaded
}

// relieve removes repositories, the one used longest ago first, while over says that the disk is
// too full. stuck are those that cannot be removed, whoever uses them. The caller holds the lock of
// removals.
func (d disk) relieve(ctx context.Context, spare string, over func() bool) (stuck map[string]bool, err error) {
	if !over() || !d.removes() {
		return nil, nil
	}
	stuck = make(map[string]bool)
	d.emptyTrash()
	for _, c := range d.candidates(spare) {
		if !over() {
			break
		}
		if ctx.Err() != nil {
			return nil, contextError(ctx)
		}
		removed, err := d.remove(c.folder)
		switch {
		case err != nil:
			stuck[c.folder] = true
			d.log.Warn("model cache: cannot remove a model", "folder", c.folder, "error", err)
		case removed:
			d.log.Info("model cache: removed the model used longest ago, to make room on the disk", "folder", c.folder,
				"last_used", c.used.Format(time.RFC3339))
		}
	}
	return stuck, nil
}

// removes says whether anything is ever removed; without locks nobody can say what other processes
// use.
func (d disk) removes() bool { return d.threshold > 0 && !d.locks.weak.Load() }

type candidate struct {
	folder string
	used   time.Time
}

// size is what the repository's blobs take, finished or not.
func (d disk) size(c candidate) (bytes int64) {
	entries, _ := os.ReadDir(filepath.Join(d.dir, c.folder, "blobs"))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes
}

// candidates are the repositories that may be removed, the one used longest ago first; spare is not
// one of them.
func (d disk) candidates(spare string) []candidate {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	var out []candidate
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "models--") || e.Name() == spare {
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

// trash is where a repository goes in one step before its files are deleted: no half of it is ever
// seen. Tools that look through the cache skip .locks.
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
