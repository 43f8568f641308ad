package hub

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// hubSource downloads models into the cache.
type hubSource struct {
	cacheDir string
	client   *client
	retry    retrier
	options  Options
}

// find downloads the model, or what the cache lacks of it. One download of a repository runs at a time, in this process
// and in others that share the cache: the others wait for it and then find its result.
func (s *hubSource) find(ctx context.Context, ref modelRef) (Resolved, string, error) {
	cache := repoCache{filepath.Join(s.cacheDir, ref.repoFolder())}
	report := &reporter{call: s.options.Progress, state: Progress{Model: ref.id}}
	release, err := lockFile(ctx, filepath.Join(s.cacheDir, ".locks", ref.repoFolder(), "sie.lock"),
		func() { report.stage(StageWaiting) })
	held := cache.find(ref)
	fromCache := Resolved{Dir: held.dir, Commit: held.commit, Source: SourceCache}
	if err != nil {
		if held.dir != "" && ctx.Err() == nil { // a read-only cache serves what it has
			return fromCache, "", nil
		}
		return Resolved{}, "", err
	}
	defer release()
	if held.dir != "" && !held.doubt {
		return fromCache, "", nil
	}
	var l *listing
	if held.doubt {
		if l = s.confirm(ctx, ref, held.commit); l == nil {
			return fromCache, "", nil
		}
		if cache.lacks(l.commit, sizes(l.files)) == "" {
			// The manifest spares the next start this question; a cache that cannot hold it serves all the same.
			_ = cache.writeManifest(l.commit, l.files)
			return fromCache, "", nil
		}
	} else if l, err = s.describeAll(ctx, ref, s.retry); err != nil {
		return Resolved{}, "", err
	}
	if err := s.install(ctx, cache, ref, l, report); err != nil {
		return Resolved{}, "", err
	}
	report.stage(StageDone)
	return Resolved{Dir: cache.snapshot(l.commit), Commit: l.commit, Source: SourceHub}, "", nil
}

// confirmTimeout bounds the question whether a snapshot of another tool is complete: it delays a start that could go
// on without the answer.
const confirmTimeout = 5 * time.Second

// confirm asks once for the files of a cached commit; nil when there is no answer, for whatever reason.
func (s *hubSource) confirm(ctx context.Context, ref modelRef, commit string) *listing {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	ref.revision = commit
	l, err := s.describeAll(ctx, ref, retrier{attempts: 1, sleep: s.retry.sleep})
	if err != nil {
		return nil
	}
	return l
}

// install makes the listed files visible as a snapshot, and then as the revision. The caller holds the lock.
func (s *hubSource) install(ctx context.Context, cache repoCache, ref modelRef, l *listing, report *reporter) error {
	if err := cache.removeStaging(); err != nil {
		return storageError(err, "clean up an earlier download")
	}
	// A file that another tool put there is kept, as a blob of the right name is.
	missing := slices.DeleteFunc(slices.Clone(l.files), func(f remoteFile) bool {
		return cache.lacks(l.commit, map[string]int64{f.name: f.size}) == ""
	})
	if err := s.download(ctx, cache, ref, l.commit, missing, report); err != nil {
		return err
	}
	if err := cache.publish(l.commit, l.files); err != nil {
		return storageError(err, "put the files into the cache")
	}
	if !ref.isCommit() {
		if err := writeAtomically(cache.ref(ref.revision), []byte(l.commit)); err != nil {
			return storageError(err, "write the cache's ref")
		}
	}
	return nil
}

// describeAll lists the revision and completes the files' checksums and sizes, all within the bounds.
func (s *hubSource) describeAll(ctx context.Context, ref modelRef, retry retrier) (*listing, error) {
	var l *listing
	err := retry.run(ctx, retry.attempts, func() (_ int64, err error) {
		l, err = s.client.list(ctx, ref)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	if len(l.files) == 0 {
		return nil, fail(ClassConfig, nil, "has no model files at commit %s; check that it is a model repository", l.commit)
	}
	if len(l.files) > s.options.MaxFiles {
		return nil, fail(ClassConfig, nil, "has %d files, above the limit of %d", len(l.files), s.options.MaxFiles)
	}
	var total int64
	for i := range l.files {
		f := &l.files[i]
		if f.hash == "" {
			err := retry.run(ctx, retry.attempts, func() (_ int64, err error) {
				*f, err = s.client.describe(ctx, ref, l.commit, *f)
				return 0, err
			})
			if err != nil {
				return nil, err
			}
		}
		if f.size > s.options.MaxFileBytes {
			return nil, fail(ClassConfig, nil, "%s has %d bytes, above the limit of %d for one file", f.name, f.size, s.options.MaxFileBytes)
		}
		if total += f.size; total > s.options.MaxTotalBytes {
			return nil, fail(ClassConfig, nil, "has more than %d bytes of files, the limit for one model", s.options.MaxTotalBytes)
		}
	}
	return l, nil
}

// download fetches the blobs of files, the largest first so that the long ones do not start last.
func (s *hubSource) download(ctx context.Context, cache repoCache, ref modelRef, commit string, files []remoteFile, report *reporter) error {
	// Two names may share one content; it is downloaded once.
	blobs := slices.Clone(files)
	slices.SortFunc(blobs, func(a, b remoteFile) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.hash, b.hash)) })
	blobs = slices.CompactFunc(blobs, func(a, b remoteFile) bool { return a.hash == b.hash })
	var total, needed int64
	for _, f := range blobs {
		total += f.size
		if !blobExists(cache.blob(f.hash), f.size) {
			needed += f.size - partialSize(cache.blob(f.hash)+".incomplete", f.size)
		}
	}
	if free, ok := freeBytes(s.cacheDir); ok && needed > free {
		return fail(ClassStorage, nil, "needs %d MiB more on the disk of %s, which has %d MiB free: free space, or point SIE_LOCAL_CACHE to a larger disk",
			(needed>>20)+1, s.cacheDir, free>>20)
	}
	report.begin(total, len(blobs))
	report.stage(StageDownloading)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.options.Parallel)
	for _, f := range blobs {
		group.Go(func() error {
			if groupCtx.Err() != nil { // another file failed while this one waited for its turn
				return context.Cause(groupCtx)
			}
			return s.fetchBlob(groupCtx, cache, ref, commit, f, report)
		})
	}
	err := group.Wait()
	if err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	return err
}

// partialSize is what a partial file saves of a download of size bytes.
func partialSize(path string, size int64) int64 {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil || stat.Size > size {
		return 0
	}
	return stat.Size
}

// freeBytes is the space on the disk of dir that this user may fill.
func freeBytes(dir string) (int64, bool) {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0, false
	}
	return int64(min(stat.Bavail, 1<<40) * uint64(stat.Bsize)), true
}
