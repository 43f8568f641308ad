package hub

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/guard"
)

// fetcher downloads listed files from one origin into the cache.
type fetcher struct {
	from     origin
	cacheDir string
	parallel int // files at a time
	retry    retrier
	disk     disk
}

// install downloads the listed files and makes them visible as a snapshot, then as the revision.
// The caller holds the lock.
func (s *fetcher) install(
	ctx context.Context, cache repoCache, ref modelRef, l *listing, report *reporter,
) error {
	if s.disk.locks.processSuffix() != "" {
		cache.removeOld()
	} else if err := cache.removeStaging(); err != nil {
		return storageError(err, "clean up an earlier download")
	}
	// no other tool has one here
	if entries, _ := os.ReadDir(filepath.Join(cache.dir, "snapshots")); len(entries) == 0 {
		if err := createRecord(accessRecord(cache.dir)); err != nil {
			return storageError(err, "create the model's folder in the cache")
		}
	}
	// A file of the right size that another tool put there is kept.
	missing := slices.DeleteFunc(slices.Clone(l.files), func(f remoteFile) bool {
		return cache.missingFile(l.commit, map[string]int64{f.name: f.size}) == ""
	})
	if err := s.download(ctx, cache, ref, l.commit, missing, report); err != nil {
		return err
	}
	if err := cache.publish(l, s.disk.locks.processSuffix()); err != nil {
		return storageError(err, "put the files into the cache")
	}
	if !ref.isCommit() {
		if err := cache.write(cache.ref(ref.revision), []byte(l.commit)); err != nil {
			return storageError(err, "write the cache's ref")
		}
	}
	return nil
}

// download fetches the blobs of files. The largest start first, so that no long download starts
// last.
func (s *fetcher) download(
	ctx context.Context, cache repoCache, ref modelRef, commit string, files []remoteFile, report *reporter,
) error {
	// Two names may have the same content; it is downloaded once.
	blobs := slices.Clone(files)
	slices.SortFunc(blobs,
		func(a, b remoteFile) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.hash, b.hash)) })
	blobs = slices.CompactFunc(blobs, func(a, b remoteFile) bool { return a.hash == b.hash })
	var total, needed int64
	for _, f := range blobs {
		total += f.size
		if !blobExists(cache.blob(f.hash), f.size) {
			needed += f.size - partialSize(s.disk.locks.partial(cache.blob(f.hash)), f.size)
		}
	}
	room, err := s.disk.reserve(ctx,
		spaceNeed{bytes: needed, folder: ref.repoFolder(), untilFits: ref.adapter > 0},
		func() { report.stage(StageWaiting) })
	if err != nil {
		return err
	}
	defer room.release()
	report.begin(total, len(blobs))
	report.stage(StageDownloading)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	for _, f := range blobs {
		group.Go(func() error {
			if groupCtx.Err() != nil { // another file failed while this one waited for its turn
				return context.Cause(groupCtx)
			}
			return guard.Run(func() error {
				return s.fetchBlob(groupCtx, cache, ref, commit, f, report, room)
			})
		})
	}
	err = group.Wait()
	if err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	return err
}

// partialSize returns the bytes of a partial file that a download of size bytes can continue from.
func partialSize(path string, size int64) int64 {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil || stat.Size > size {
		return 0
	}
	return stat.Size
}
