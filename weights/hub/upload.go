package hub

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/weights/bucket"
)

const (
	// leaseTime is how long a lock in the bucket stays valid after its last renewal.
	leaseTime = 10 * time.Minute
	// maxSharing bounds the models that wait for their upload. A further model is uploaded after a
	// later Resolve.
	maxSharing = 256
)

// uploader uploads models from the hub to the cluster's bucket, so that other machines need not ask
// the hub. It works in the background, one model at a time.
//
// An incomplete upload is never visible, because the manifest is written last. Two uploads of the
// same model are harmless, because the name of a blob is its checksum; a lock in the bucket avoids
// the double work. A mark beside the local snapshot says that it is not uploaded yet, so an
// interrupted upload continues when the model is next resolved.
type uploader struct {
	bucket   bucket.Bucket
	cacheDir string
	locks    *locks
	retry    retrier
	log      *slog.Logger
	lease    time.Duration

	ctx    context.Context // ended by close
	cancel context.CancelFunc
	turn   chan struct{} // holds one token while an upload runs

	// by folder: the bucket gave wrong contents, which the upload of a good download replaces
	damaged sync.Map

	mu      lockorder.Mutex[lockorder.Uploader] // guards waiting
	waiting map[string]bool
	done    sync.WaitGroup
}

func newUploader(b bucket.Bucket, o Options, k *locks, retry retrier) *uploader {
	ctx, cancel := context.WithCancel(context.Background())
	return &uploader{
		bucket: b, cacheDir: o.CacheDir, locks: k, retry: retry, log: o.Log, lease: leaseTime, ctx: ctx,
		cancel: cancel, turn: make(chan struct{}, 1), waiting: make(map[string]bool),
	}
}

// markerPath returns the path of the file that marks a snapshot for upload. The file holds the
// revision that the caller asked for.
func (s *uploader) markerPath(folder, commit string) string {
	return filepath.Join(s.cacheDir, folder, ".sie", commit+".share")
}

// add starts the upload of a snapshot that has just been downloaded.
func (s *uploader) add(ref modelRef, commit string) {
	cache := repoCache{filepath.Join(s.cacheDir, ref.repoFolder())}
	if err := cache.write(s.markerPath(ref.repoFolder(), commit), []byte(ref.revision)); err != nil {
		s.log.Warn("model cache: a model will not be shared", "model", ref.id, "error", err)
		return
	}
	s.start(ref, commit)
}

// resume continues the interrupted upload of a snapshot.
func (s *uploader) resume(ref modelRef, commit string) {
	if raw, err := files.Read(s.markerPath(ref.repoFolder(), commit), maxRefBytes); err == nil {
		ref.revision = string(raw)
		if revisionPattern.MatchString(ref.revision) {
			s.start(ref, commit)
		}
	}
}

func (s *uploader) start(ref modelRef, commit string) {
	key := ref.repoFolder() + " " + commit
	held := s.locks.holdRepo(s.ctx, s.cacheDir, ref.repoFolder())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[key] || len(s.waiting) >= maxSharing || s.ctx.Err() != nil {
		held.release()
		return
	}
	s.waiting[key] = true
	s.done.Go(func() {
		defer held.release()
		defer func() {
			s.mu.Lock()
			delete(s.waiting, key)
			s.mu.Unlock()
		}()
		select {
		case s.turn <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		defer func() { <-s.turn }()
		start := time.Now()
		var bytes int64
		err := guard.Run(func() (err error) {
			bytes, err = s.upload(s.ctx, ref, commit)
			return err
		})
		switch {
		case s.ctx.Err() != nil:
		case err != nil:
			s.log.Warn(
				"model cache: a model could not be put into the cluster cache; it is tried again at its next load",
				append([]any{"model", ref.id, "bucket", s.bucket.String()}, guard.About(err)...)...)
		case bytes >= 0:
			s.log.Info("model cache: a model is in the cluster cache now", "model", ref.id,
				"bucket", s.bucket.String(), "uploaded_mib", bytes>>20,
				"took", time.Since(start).Round(time.Millisecond))
		}
	})
}

// close ends uploads. With wait set it first lets them finish until ctx ends.
func (s *uploader) close(ctx context.Context, wait bool) {
	if wait {
		stop := context.AfterFunc(ctx, s.cancel)
		s.done.Wait()
		stop()
	}
	s.cancel()
	s.done.Wait()
}

// upload puts a snapshot into the bucket. It returns the bytes sent, or -1 when another process
// uploads it.
func (s *uploader) upload(ctx context.Context, ref modelRef, commit string) (sent int64, err error) {
	cache := repoCache{filepath.Join(s.cacheDir, ref.repoFolder())}
	repo := bucketRepo{s.bucket, ref.repoFolder()}
	files, err := cache.contents(commit)
	if err != nil {
		return 0, err
	}
	present := func() (bool, error) {
		_, _, err := bucket.Read(ctx, s.bucket, repo.manifest(commit), maxManifestBytes)
		return err == nil, ignoreMissing(err)
	}
	_, repair := s.damaged.LoadAndDelete(repo.folder)
	there, err := present()
	if err != nil {
		return 0, err
	}
	if !there || repair {
		release, mine, err := s.lockBucket(ctx, repo.lock(commit))
		if err != nil || !mine {
			return -1, err
		}
		defer release()
		if there, err = present(); err != nil { // another process may have finished before the lock was taken
			return 0, err
		}
	}
	if !there || repair {
		if sent, err = s.uploadFiles(ctx, cache, repo, files, repair); err != nil {
			return sent, err
		}
		raw, err := json.MarshalIndent(bucketManifest{manifestFormat, files}, "", " ")
		if err != nil {
			return sent, err
		}
		if err := s.put(ctx, repo.manifest(commit), bytes.NewReader(raw), int64(len(raw))); err != nil {
			return sent, err
		}
	}
	if !ref.isCommit() {
		if err := s.put(ctx, repo.ref(ref.revision), bytes.NewReader([]byte(commit)),
			int64(len(commit))); err != nil {
			return sent, err
		}
	}
	return sent, os.Remove(s.markerPath(ref.repoFolder(), commit))
}

// contents returns a snapshot's manifest with the checksums that its links name.
func (c repoCache) contents(commit string) (map[string]bucketFile, error) {
	raw, err := files.Read(c.manifest(commit), maxManifestBytes)
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	out := make(map[string]bucketFile, len(m.Files))
	for name, size := range m.Files {
		target, err := os.Readlink(filepath.Join(c.snapshot(commit), filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("the snapshot's files do not tell their checksums: %w", err)
		}
		f := remoteFile{name: name, size: size, hash: filepath.Base(target)}
		if !f.named() {
			return nil, fmt.Errorf("%s has no checksum", name)
		}
		out[name] = bucketFile{Size: size, Hash: f.hash}
	}
	return out, nil
}

// uploadFiles uploads the blobs that the bucket lacks, or all of them. Each blob is verified first,
// so that a file damaged on this disk does not get the name of a good one.
func (s *uploader) uploadFiles(
	ctx context.Context, cache repoCache, repo bucketRepo, files map[string]bucketFile, all bool,
) (sent int64, err error) {
	objects, err := s.bucket.List(ctx, repo.folder+"/blobs/", 100_000)
	if err != nil {
		return 0, err
	}
	has := make(map[string]int64)
	for _, o := range objects {
		has[o.Key] = o.Size
	}
	for name, f := range files {
		key := repo.blob(f.Hash)
		if size, ok := has[key]; ok && size == f.Size && !all {
			continue
		}
		if err := s.uploadBlob(ctx, cache.blob(f.Hash), key,
			remoteFile{name: name, size: f.Size, hash: f.Hash}); err != nil {
			return sent, fmt.Errorf("%s: %w", name, err)
		}
		has[key] = f.Size
		sent += f.Size
	}
	return sent, nil
}

func (s *uploader) uploadBlob(ctx context.Context, path, key string, f remoteFile) error {
	blob, _, err := files.OpenRegular(path)
	if err != nil {
		return err
	}
	defer blob.Close()
	sum := newSum(f)
	if _, err := io.Copy(sum, contextReader{ctx, blob}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.hash {
		return fmt.Errorf(
			"is damaged on this disk: its checksum is %s, not %s; delete the model's folder from the cache",
			got, f.hash)
	}
	return s.put(ctx, key, blob, f.size)
}

// contextReader ends a long copy when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

func (s *uploader) put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	return s.retry.run(ctx, s.retry.attempts, func() (int64, error) {
		if _, err := s.bucket.Put(ctx, key, body, size, bucket.Condition{}); err != nil {
			return 0, bucketError(err)
		}
		return 0, nil
	})
}

// lockBucket takes the lock of a model in the bucket and renews it until release. mine is false
// when another process holds the lock. A lock that was not renewed within the lease is taken over.
// A bucket without conditional writes has no locks, and mine is then true.
func (s *uploader) lockBucket(ctx context.Context, key string) (release func(), mine bool, err error) {
	owner := []byte(rand.Text())
	put := func(when bucket.Condition) (string, error) {
		return s.bucket.Put(ctx, key, bytes.NewReader(owner), int64(len(owner)), when)
	}
	version, err := put(bucket.Condition{Absent: true})
	if errors.Is(err, bucket.ErrChanged) {
		_, held, readErr := bucket.Read(ctx, s.bucket, key, 1024)
		if errors.Is(readErr, bucket.ErrNotFound) { // released just now: its holder has finished or failed
			return nil, false, nil
		}
		if readErr != nil || time.Since(held.Modified) < s.lease {
			return nil, false, readErr
		}
		if version, err = put(bucket.Condition{Version: held.Version}); errors.Is(err, bucket.ErrChanged) {
			return nil, false, nil
		}
	}
	if errors.Is(err, bucket.ErrUnsupported) {
		return func() {}, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	l := bucketLock{bucket: s.bucket, key: key, owner: owner, version: version}
	renewals, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		err := guard.Run(func() error { l.keep(renewals, s.lease/4); return nil })
		if err != nil { // the lock becomes old; the upload goes on
			s.log.Warn("model cache: the lock in the cluster cache is renewed no more",
				append([]any{"key", key}, guard.About(err)...)...)
		}
	})
	return func() {
		stop()
		renewing.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		if err := l.remove(ctx); err != nil {
			s.log.Warn("model cache: the lock in the cluster cache stays until it is old", "key", key,
				"error", err)
		}
	}, true, nil
}

// bucketLock is a lock in the bucket that this process took. One goroutine at a time uses it.
type bucketLock struct {
	bucket   bucket.Bucket
	key      string
	owner    []byte // with which its content begins
	renewals int    // whose number follows the owner
	version  string
}

// keep renews the lock until ctx ends or another process has it. A renewal that fails is tried
// again after the next pause; it only risks that the work is done twice.
func (l *bucketLock) keep(ctx context.Context, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !l.renew(ctx, pause) {
			return
		}
	}
}

// renew writes the lock again within a time, and reports whether it may still be this process's. It
// has another content than before: the version of an object in S3 is a hash of its content, and who
// saw the lock before this renewal must not be able to take it over.
func (l *bucketLock) renew(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l.renewals++
	content := fmt.Appendf(nil, "%s %d", l.owner, l.renewals)
	version, err := l.bucket.Put(ctx, l.key, bytes.NewReader(content), int64(len(content)),
		bucket.Condition{Version: l.version})
	switch {
	case err == nil:
		l.version = version
	case errors.Is(err, bucket.ErrChanged): // by a renewal whose answer was lost, or by another process
		version, err := l.held(ctx)
		if err == nil && version == "" {
			return false
		}
		if err == nil {
			l.version = version
		}
	}
	return true
}

// held returns the version of the lock, "" if it is not this process's any more.
func (l *bucketLock) held(ctx context.Context) (version string, err error) {
	raw, object, err := bucket.Read(ctx, l.bucket, l.key, 1024)
	if err != nil {
		return "", ignoreMissing(err)
	}
	if !bytes.HasPrefix(raw, l.owner) {
		return "", nil
	}
	return object.Version, nil
}

// remove removes the lock, unless another process has it.
func (l *bucketLock) remove(ctx context.Context) error {
	version, err := l.held(ctx)
	if err != nil || version == "" {
		return err
	}
	return l.bucket.Delete(ctx, l.key)
}

func ignoreMissing(err error) error {
	if errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}
