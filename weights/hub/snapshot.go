package hub

import (
	"context"
	"time"
)

// hubSource downloads models into the cache.
type hubSource struct {
	fetcher
	client  *client
	options Options
	share   *uploader // nil without a cluster's bucket
}

// find downloads the model, or the part of it that the cache lacks. Only one download of a
// repository runs at a time among all processes that share the cache. The others wait for it and
// then find its result.
func (s *hubSource) find(ctx context.Context, ref modelRef) (Resolved, string, error) {
	t, whole, err := s.takeTurn(ctx, ref, s.options.Progress)
	if err != nil {
		return Resolved{}, "", err
	}
	if whole {
		return t.fromCache(), "", nil
	}
	defer t.release()
	cache, held, report := t.cache, t.held, t.report
	var l *listing
	if held.doubt {
		if l = s.confirm(ctx, ref, held.commit); l == nil {
			return t.fromCache(), "", nil
		}
		if cache.missingFile(l.commit, sizes(l.files)) == "" {
			// With the manifest, the next start need not ask. A cache that cannot hold the manifest
			// works all the same.
			_ = cache.writeManifest(l)
			return t.fromCache(), "", nil
		}
	} else if l, err = s.describeAll(ctx, ref, s.retry); err != nil {
		return Resolved{}, "", err
	}
	if err := s.install(ctx, cache, ref, l, report); err != nil {
		return Resolved{}, "", err
	}
	if s.share != nil && !l.part {
		s.share.add(ref, l.commit)
	}
	report.stage(StageDone)
	return Resolved{Dir: cache.snapshot(l.commit), Commit: l.commit, Source: SourceHub}, "", nil
}

// confirmTimeout bounds the check of another tool's snapshot against the hub's list. The check
// delays a start that could continue without the answer.
const confirmTimeout = 5 * time.Second

// confirm asks once for the files of a cached commit. It returns nil when there is no answer, for
// any reason.
func (s *hubSource) confirm(ctx context.Context, ref modelRef, commit string) *listing {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	ref.revision = commit
	l, err := s.describeAll(ctx, ref,
		retrier{attempts: 1, sleep: s.retry.sleep, who: s.retry.who, check: s.retry.check})
	if err != nil {
		return nil
	}
	return l
}

// describeAll lists the revision and completes the files' checksums and sizes, all within the
// bounds.
func (s *hubSource) describeAll(ctx context.Context, ref modelRef, retry retrier) (*listing, error) {
	var l *listing
	err := retry.run(ctx, retry.attempts, func() (_ int64, err error) {
		l, err = s.client.list(ctx, ref)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	if len(l.files) == 0 && ref.adapter == 0 {
		return nil, fail(ClassConfig, nil,
			"has no model files at commit %s; check that it is a model repository", l.commit)
	}
	if ref.adapter > 0 {
		if err := l.asAdapter(ref); err != nil {
			return nil, err
		}
	}
	if ref.tokenizer {
		if err := l.asTokenizer(); err != nil {
			return nil, err
		}
	}
	if len(l.files) > s.options.MaxFiles { // before one request for each of them
		return nil, s.options.checkBounds(l)
	}
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
	}
	if ref.adapter > 0 {
		if err := l.asAdapter(ref); err != nil {
			return nil, err
		}
	}
	return l, s.options.checkBounds(l)
}

// checkBounds refuses a list that has more files or bytes than the options allow.
func (o Options) checkBounds(l *listing) error {
	if len(l.files) > o.MaxFiles {
		return fail(ClassConfig, nil, "has %d files, above the limit of %d", len(l.files), o.MaxFiles)
	}
	var total int64
	for _, f := range l.files {
		if f.size > o.MaxFileBytes {
			return fail(ClassConfig, nil, "%s has %d bytes, above the limit of %d for one file",
				f.name, f.size, o.MaxFileBytes)
		}
		if total += f.size; total > o.MaxTotalBytes {
			return fail(ClassConfig, nil, "has more than %d bytes of files, the limit for one model",
				o.MaxTotalBytes)
		}
	}
	return nil
}
