package hub

import (
	"context"
	"path/filepath"
)

// turn is one repository of the cache while this goroutine alone may download into it.
type turn struct {
	cache   repoCache
	held    cached // the cache's snapshot when the turn began
	report  *reporter
	release func()
}

// fromCache returns the snapshot that the cache held.
func (t turn) fromCache() Resolved {
	return Resolved{Dir: t.held.dir, Commit: t.held.commit, Source: SourceCache}
}

// takeTurn waits until no other goroutine or process downloads the repository. whole means that the
// cache has all of it; nothing is then left to release. A cache that cannot be locked, because it
// is read-only, serves the snapshot it has.
func (s *fetcher) takeTurn(
	ctx context.Context, ref modelRef, progress func(Progress),
) (t turn, whole bool, _ error) {
	t = turn{
		cache:  repoCache{filepath.Join(s.cacheDir, ref.repoFolder())},
		report: &reporter{call: reportsOf(ctx, progress), state: Progress{Model: ref.id}},
	}
	release, err := s.disk.locks.take(ctx, filepath.Join(s.cacheDir, ".locks", ref.repoFolder(), "sie.lock"),
		func() { t.report.stage(StageWaiting) })
	t.held, t.release = t.cache.find(ref), release
	switch {
	case err != nil && (t.held.dir == "" || ctx.Err() != nil):
		return t, false, err
	case err != nil:
		return t, true, nil
	case t.held.dir != "" && !t.held.doubt:
		release()
		return t, true, nil
	}
	return t, false, nil
}
