package hub

import (
	"context"
	"errors"
	"log/slog"

	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/weights/bucket"
)

// bucketSource downloads models from the cluster's bucket into the cache.
type bucketSource struct {
	fetcher
	bucket  bucket.Bucket
	options Options
	log     *slog.Logger
	share   *uploader
	last    bool // no hub is asked after it
}

// find downloads the model if the bucket has all of it. When a hub can be asked next, a bucket that
// does not answer, refuses or holds damaged files is logged and skipped, because the bucket only
// saves time.
func (s *bucketSource) find(ctx context.Context, ref modelRef) (Resolved, string, error) {
	t, whole, err := s.takeTurn(ctx, ref, s.options.Progress)
	if err != nil {
		return Resolved{}, "", err
	}
	if whole {
		return t.fromCache(), "", nil
	}
	defer t.release()
	cache, held, report := t.cache, t.held, t.report
	commit, err := s.fetch(ctx, cache, ref, held, report)
	switch {
	case err == nil:
		report.stage(StageDone)
		return Resolved{Dir: cache.snapshot(commit), Commit: commit, Source: SourceBucket}, "", nil
	case ctx.Err() != nil:
		return Resolved{}, "", contextError(ctx)
	case held.dir != "" && s.last:
		return t.fromCache(), "", nil
	case errors.Is(err, bucket.ErrNotFound):
		return Resolved{}, "the cluster cache " + s.bucket.String() + " does not have it", nil
	case ClassOf(err) == ClassStorage: // the local disk would fail the hub's download, too
		return Resolved{}, "", err
	case !s.last:
		if errors.Is(err, errDamaged) {
			s.share.damaged.Store(ref.repoFolder(), true)
		}
		if e, ok := errors.AsType[*Error](err); ok {
			e.Model = ref.id
		}
		s.log.Warn("model cache: the cluster cache cannot give a model; the hub is asked",
			append([]any{"model", ref.id, "bucket", s.bucket.String()}, guard.About(err)...)...)
		return Resolved{}, "the cluster cache failed", nil
	case errors.Is(err, bucket.ErrDenied):
		return Resolved{}, "", fail(ClassConfig, err,
			"the cluster cache %s refuses; check its name and this machine's credentials", s.bucket)
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		err = fail(ClassNetwork, err, "the cluster cache %s failed", s.bucket)
	}
	return Resolved{}, "", err
}

// fetch installs the model. The error is bucket.ErrNotFound when the bucket does not have all of
// it.
func (s *bucketSource) fetch(
	ctx context.Context, cache repoCache, ref modelRef, held cached, report *reporter,
) (string, error) {
	if held.doubt { // complete the commit that is there, not the branch's newest
		ref.revision = held.commit
	}
	l, err := s.contents(ctx, ref)
	if err != nil {
		return "", err
	}
	return l.commit, s.install(ctx, cache, ref, l, report)
}
