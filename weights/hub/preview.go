package hub

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/weights/bucket"
)

// ErrOnlyAdapter is the cause of the error of Preview where a model is a repository of which this
// machine has a LoRA adapter, and not the files that say what the repository is for.
var ErrOnlyAdapter = errors.New("downloads are off")

// maxPreviewBytes bounds each file whose content a preview includes.
const maxPreviewBytes = 16 << 20

// lister is a source that can list a model's files before it downloads them.
type lister interface {
	// contents lists the model's files. The error is bucket.ErrNotFound when a bucket does not have
	// the model.
	contents(ctx context.Context, ref modelRef) (*listing, error)
	// confirm lists the files of a commit of which a snapshot in doubt is here, and does not wait
	// long. It returns nil when there is no answer.
	confirm(ctx context.Context, ref modelRef, commit string) *listing
	downloader() *fetcher
}

// Preview makes a directory with a model's named files and empty files for all others. It shows
// which files a model has without downloading its weights. remove deletes the directory. For a
// model on this machine, dir is the model's own directory, which remove leaves in place. The
// downloaded files are also in the cache, where Resolve finds them. id, revision and errors are as
// for Resolve.
func (r *Resolver) Preview(
	ctx context.Context, id, revision string, names ...string,
) (dir string, remove func(), err error) {
	dir, remove, err = r.preview(ctx, id, revision, names)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(id)
	}
	return dir, remove, err
}

func (r *Resolver) preview(ctx context.Context, id, revision string, names []string) (string, func(), error) {
	path, isPath, err := localPath(id)
	if err != nil {
		return "", nil, err
	}
	if isDirectory(path) {
		return path, func() {}, nil
	}
	if isPath {
		return "", nil, fail(ClassNotFound, nil, "is not a directory on this machine; check the path")
	}
	ref, err := parseRef(id, revision)
	if err != nil {
		return "", nil, err
	}
	held := r.locks.holdRepo(ctx, r.cacheDir, ref.repoFolder())
	cache := repoCache{filepath.Join(r.cacheDir, ref.repoFolder())}
	have := r.disk.look(ref)
	err = fail(ClassNotFound, nil, "is not on this machine, and downloads are off")
	if m, _ := cache.readManifest(have.commit); m.Adapter { // an adapter may be there with these files
		ref := ref
		ref.adapter, ref.beside = math.MaxInt64, names
		if have = r.disk.look(ref); have.dir == "" {
			err = fail(ClassNotFound, ErrOnlyAdapter, "%s", have.missing)
		}
	}
	if have.dir != "" && !have.doubt {
		return have.dir, held.release, nil
	}
	for _, s := range r.sources {
		from, ok := s.(lister)
		if !ok {
			continue
		}
		var l *listing
		if have.doubt { // as Resolve does: the commit that is there, not the branch's newest
			l = from.confirm(ctx, ref, have.commit)
		} else {
			l, err = from.contents(ctx, ref)
		}
		if l != nil {
			var dir string
			if dir, err = from.downloader().writePreview(ctx, ref, l, names); err == nil {
				held.release()
				return dir, func() { _ = os.RemoveAll(dir) }, nil
			}
		}
	}
	switch {
	case have.dir != "": // as Resolve does when its completeness cannot be checked
		return have.dir, held.release, nil
	case ctx.Err() != nil:
		err = contextError(ctx)
	}
	held.release()
	if errors.Is(err, bucket.ErrNotFound) {
		err = fail(ClassNotFound, err, "is neither on this machine nor in the cluster cache")
	}
	return "", nil, err
}

// writePreview makes the directory of a preview.
func (s *fetcher) writePreview(
	ctx context.Context, ref modelRef, l *listing, names []string,
) (string, error) {
	dir, err := os.MkdirTemp("", "sie-sketch-")
	if err != nil {
		return "", storageError(err, "make a temporary directory")
	}
	for _, f := range l.files {
		if err := s.writePreviewFile(ctx, dir, ref, l.commit, f, slices.Contains(names, f.name)); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// writePreviewFile writes one file of a preview, with its content or empty.
func (s *fetcher) writePreviewFile(
	ctx context.Context, dir string, ref modelRef, commit string, f remoteFile, whole bool,
) error {
	var content []byte
	if whole {
		if f.size > maxPreviewBytes {
			return fail(ClassConfig, nil, "%s has %d bytes, above the limit of %d for a configuration",
				f.name, f.size, maxPreviewBytes)
		}
		cache := repoCache{filepath.Join(s.cacheDir, ref.repoFolder())}
		if err := s.fetchBlob(ctx, cache, ref, commit, f, &reporter{}, nil); err != nil {
			return err
		}
		var err error
		if content, err = files.Read(cache.blob(f.hash), maxPreviewBytes); err != nil {
			return storageError(err, "read "+f.name)
		}
	}
	at := filepath.Join(dir, filepath.FromSlash(f.name))
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if err == nil {
		err = os.WriteFile(at, content, 0o600)
	}
	if err != nil {
		return storageError(err, "write a temporary file")
	}
	return nil
}

func (s *hubSource) downloader() *fetcher { return &s.fetcher }

func (s *hubSource) contents(ctx context.Context, ref modelRef) (*listing, error) {
	return s.describeAll(ctx, ref, s.retry)
}

func (s *bucketSource) downloader() *fetcher { return &s.fetcher }

func (s *bucketSource) contents(ctx context.Context, ref modelRef) (l *listing, err error) {
	repo := bucketRepo{s.bucket, ref.repoFolder()}
	err = s.retry.run(ctx, s.retry.attempts, func() (int64, error) {
		commit, err := repo.commit(ctx, ref)
		if err == nil {
			l, err = repo.list(ctx, commit, s.options.MaxFiles)
		}
		if err != nil {
			return 0, bucketError(err)
		}
		return 0, nil
	})
	if err == nil && ref.adapter > 0 && l.asAdapter(ref) != nil {
		return nil, bucket.ErrNotFound
	}
	if err == nil && ref.tokenizer && l.asTokenizer() != nil {
		return nil, bucket.ErrNotFound
	}
	if err == nil {
		err = s.options.checkBounds(l)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (s *bucketSource) confirm(ctx context.Context, ref modelRef, commit string) *listing {
	ref.revision = commit
	l, err := s.contents(ctx, ref)
	if err != nil {
		return nil
	}
	return l
}
