package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Source is the place where a model was found.
type Source string

// The sources.
const (
	SourceLocal  Source = "local"  // the id was a directory
	SourceCache  Source = "cache"  // a complete snapshot was on disk
	SourceBucket Source = "bucket" // it was downloaded now, from the cluster's bucket
	SourceHub    Source = "hub"    // it was downloaded now, from the hub
)

// Resolved is a model's directory on disk.
type Resolved struct {
	Dir    string
	Commit string // of the snapshot; "" for a local directory
	Source Source

	held *hold
}

// Release ends the use of the directory. Until then, or until the process ends, the cache keeps the
// directory. Further calls do nothing.
func (r Resolved) Release() { r.held.release() }

// source is one place that may hold a model. find has three results: the model; a zero Resolved and
// the reason why the model is missing, after which the next source is asked; or an error, which
// ends the search.
type source interface {
	find(ctx context.Context, ref modelRef) (found Resolved, missing string, err error)
}

// Resolver finds models. It is safe for concurrent use, also by several processes on one cache.
type Resolver struct {
	cacheDir string
	locks    *locks
	disk     diskCache
	sources  []source  // in the order they are asked, disk first
	uploads  *uploader // nil without a cluster's bucket and a hub
}

// New makes a Resolver. The error names every wrong option.
func New(o Options) (*Resolver, error) {
	o = o.withDefaults()
	endpoint, err := o.validate()
	if err != nil {
		return nil, &Error{Class: ClassConfig, Message: "wrong settings for model downloads", Err: err}
	}
	r := &Resolver{cacheDir: o.CacheDir, locks: newLocks(o.Log)}
	r.disk = diskCache{dir: o.CacheDir, offline: o.Offline && o.Bucket == nil}
	r.sources = append(r.sources, r.disk)
	disk := disk{
		dir:       o.CacheDir,
		locks:     r.locks,
		userWait:  defaultUserWait,
		threshold: o.DiskThreshold,
		space:     diskSpace,
		log:       o.Log,
	}
	if o.Bucket != nil {
		o.Bucket = watchedBucket{o.Bucket, o.StallTimeout}
		// A bucket is near and the hub is asked after it, so three tries are enough.
		retry := retrier{
			attempts: min(3, o.Attempts),
			sleep:    sleep,
			who:      "the cluster cache",
			check:    "the cluster cache " + o.Bucket.String(),
		}
		if !o.Offline {
			r.uploads = newUploader(o.Bucket, o, r.locks, retry)
		}
		from := bucketOrigin{o.Bucket}
		r.sources = append(r.sources, &bucketSource{fetcher: fetcher{
			from: from, cacheDir: o.CacheDir, parallel: o.Parallel, retry: retry, disk: disk,
		}, bucket: o.Bucket, options: o, log: o.Log, share: r.uploads, last: o.Offline})
	}
	if !o.Offline {
		client := newClient(o, endpoint)
		retry := retrier{
			attempts: o.Attempts,
			sleep:    sleep,
			who:      "the hub",
			check:    "the connection, the proxy settings and HF_ENDPOINT",
		}
		r.sources = append(r.sources, &hubSource{fetcher: fetcher{
			from: client, cacheDir: o.CacheDir, parallel: o.Parallel, retry: retry, disk: disk,
		}, client: client, options: o, share: r.uploads})
	}
	return r, nil
}

// Close ends uploads to the cluster's bucket. The next process that uses the model continues them.
// No Resolve may be running.
func (r *Resolver) Close() {
	if r.uploads != nil {
		r.uploads.close(context.Background(), false)
	}
}

// Shutdown closes the Resolver as Close does, but lets uploads finish until ctx ends.
func (r *Resolver) Shutdown(ctx context.Context) {
	if r.uploads != nil {
		r.uploads.close(ctx, true)
	}
}

// Resolve returns the directory of a model and downloads it if needed. id is the path of a
// directory or a hub id such as "org/name". A path is absolute, begins with ./, ../ or ~/, or is
// the plain name of a directory, which wins over a hub id as in the Python tools. revision is a
// branch, tag or commit of a hub id, "" for main. It is ignored for a directory.
//
// A complete snapshot on disk is used without asking the hub. A branch that has moved on is
// therefore not noticed; name a commit for a fixed state. A snapshot of another tool that may be
// incomplete is checked against the hub's list once, for at most 5 s. Otherwise the model is
// downloaded, and concurrent callers wait for the one download.
//
// Release the result when its files are no longer needed. Errors are *Error, except that a
// cancelled ctx gives its cause. The bytes of a failed download are kept.
func (r *Resolver) Resolve(ctx context.Context, id, revision string) (Resolved, error) {
	found, err := r.resolve(ctx, id, revision)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(id)
		return Resolved{}, e
	}
	return found, err
}

func (r *Resolver) resolve(ctx context.Context, id, revision string) (Resolved, error) {
	found, ref, err := r.local(id, revision)
	if found.Dir != "" || err != nil {
		return found, err
	}
	return r.search(ctx, ref)
}

// search asks the sources in order.
func (r *Resolver) search(ctx context.Context, ref modelRef) (Resolved, error) {
	var missing string
	var held *hold
	for _, s := range r.sources {
		// The repository is held before the search, so that nobody removes the snapshot that find
		// returns. Looking for a repository that is not on disk needs no lock, and leaves no lock
		// file.
		if _, isDisk := s.(diskCache); held == nil &&
			(!isDisk || isDirectory(filepath.Join(r.cacheDir, ref.repoFolder()))) {
			held = r.locks.holdRepo(ctx, r.cacheDir, ref.repoFolder())
		}
		found, why, err := s.find(ctx, ref)
		if err != nil {
			held.release()
			return Resolved{}, err
		}
		if found.Dir != "" {
			found.held = held
			if r.uploads != nil && found.Source == SourceCache {
				r.uploads.resume(ref, found.Commit)
			}
			return found, nil
		}
		missing = strings.TrimPrefix(missing+", and "+why, ", and ")
	}
	held.release()
	return Resolved{}, fail(ClassNotFound, nil,
		"%s, and downloads are off (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE, SIE_HF_FALLBACK or "+
			"--no-hf-fallback): turn them on, or fill the cache beforehand", missing)
}

// Find looks for a model on this machine only. It takes the arguments of Resolve, and reports false
// when Resolve would have to download the model. Errors are those of Resolve.
func (r *Resolver) Find(ctx context.Context, id, revision string) (Resolved, bool, error) {
	found, ok, err := r.find(ctx, id, revision)
	if e, is := errors.AsType[*Error](err); is {
		e.Model = short(id)
	}
	return found, ok, err
}

func (r *Resolver) find(ctx context.Context, id, revision string) (Resolved, bool, error) {
	found, ref, err := r.local(id, revision)
	if found.Dir != "" || err != nil {
		return found, err == nil, err
	}
	return r.onDisk(ctx, ref)
}

// onDisk returns the complete snapshot in the cache, if there is one.
func (r *Resolver) onDisk(ctx context.Context, ref modelRef) (Resolved, bool, error) {
	if !isDirectory(filepath.Join(r.cacheDir, ref.repoFolder())) {
		return Resolved{}, false, nil
	}
	held := r.locks.holdRepo(ctx, r.cacheDir, ref.repoFolder())
	found, _, err := r.disk.find(ctx, ref)
	if found.Dir == "" || err != nil {
		held.release()
		return Resolved{}, false, err
	}
	found.held = held
	if r.uploads != nil {
		r.uploads.resume(ref, found.Commit)
	}
	return found, true, nil
}

// local returns the directory that id names, or else the checked repository id.
func (r *Resolver) local(id, revision string) (Resolved, modelRef, error) {
	path, isPath, err := localPath(id)
	if err != nil {
		return Resolved{}, modelRef{}, err
	}
	if isDirectory(path) {
		return Resolved{Dir: path, Source: SourceLocal}, modelRef{}, nil
	}
	if isPath {
		return Resolved{}, modelRef{}, fail(ClassNotFound, nil,
			"the path of its weights is not a directory on this machine; check it")
	}
	ref, err := parseRef(id, revision)
	return Resolved{}, ref, err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // the operator names the directory
	return err == nil && info.IsDir()
}

// localPath expands an id that may be a path, and reports whether it can only be a path.
func localPath(id string) (path string, isPath bool, err error) {
	switch {
	case id == "" || strings.ContainsRune(id, 0):
		return "", false, fail(ClassConfig, nil,
			"a model needs an id such as \"org/name\", or the path of its directory")
	case strings.HasPrefix(id, "~/"):
		home, err := os.UserHomeDir()
		if err != nil {
			return "", true, fail(ClassConfig, err, "~ cannot be expanded")
		}
		return filepath.Join(home, id[2:]), true, nil
	}
	return id, filepath.IsAbs(id) || id == "." || id == ".." || strings.HasPrefix(id, "./") ||
		strings.HasPrefix(id, "../"), nil
}

// diskCache finds complete snapshots on disk. It never writes, so a read-only cache works.
type diskCache struct {
	dir     string
	offline bool
}

func (c diskCache) find(_ context.Context, ref modelRef) (Resolved, string, error) {
	held := c.look(ref)
	if held.dir == "" || held.doubt && !c.offline {
		return Resolved{}, held.missing, nil
	}
	return Resolved{Dir: held.dir, Commit: held.commit, Source: SourceCache}, "", nil
}

// look looks for a complete snapshot, as find does, and returns also one in doubt.
func (c diskCache) look(ref modelRef) cached {
	cache := repoCache{filepath.Join(c.dir, ref.repoFolder())}
	held := cache.find(ref)
	if held.dir == "" && c.offline && ref.unrevised && !exists(cache.ref(ref.revision)) {
		// The caller named no revision and nothing newer can be downloaded, so the only snapshot is
		// used.
		if commit, ok := cache.only(); ok {
			held = cache.findCommit(commit, ref)
		}
	}
	return held
}
