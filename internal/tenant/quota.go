package tenant

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// burst is the time for which a tenant that was idle may use its items at once.
const burst = time.Second

// usage is what a tenant has used. It belongs to a name, and outlives the entries of the file.
type usage struct {
	shared *shared // with the other servers; never nil

	mu       sync.Mutex
	level    float64   // items that may be used at once; a request is admitted above 0
	at       time.Time // of level; zero: never
	inFlight int
	counts   counts
	others   others // what the other servers of the cluster have told, and know
}

// counts is what a tenant has used since the process started.
type counts struct {
	Requests, Items        uint64 // that were admitted
	OverRate, OverInFlight uint64 // requests that were refused with a 429
	Forbidden              uint64 // and with a 403
}

// fill lets the level grow to now. It is never above the items of a burst, nor below 0 for longer
// than the items that were taken allow.
func (u *usage) fill(perSecond float64, now time.Time) {
	most := max(perSecond*burst.Seconds(), 1)
	if u.at.IsZero() {
		u.level, u.at = most, now
	} else if d := now.Sub(u.at); d > 0 { // else one that read the time later was here before
		u.level, u.at = u.level+perSecond*d.Seconds(), now
	}
	u.level = min(u.level, most)
}

// Take counts a request with n items, or returns why it is refused: the 429 with the time until it
// is not, or the 400 of a request that never is. release gives the items in flight back; call it
// once. A request is admitted while the tenant has an item left, whatever n is: the items of a
// large one are taken in advance, and the average holds. Where other servers share the quota, Take
// may wait for a moment, until they know what was admitted here; no longer than ctx.
func (t *Tenant) Take(ctx context.Context, n int) (release func(), err *errs.Error) {
	if t == nil {
		return func() {}, nil
	}
	u := t.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.inFlight > 0 && n > t.inFlight {
		if e := t.overRateLocked(time.Now()); e != nil {
			u.counts.OverRate++
			return nil, e
		}
		return nil, errs.MoreThanInFlight(t.Name, n, t.inFlight)
	}
	if err := t.admitLocked(ctx, n); err != nil {
		return nil, err
	}
	if t.itemsPerSecond > 0 {
		u.level -= float64(n)
	}
	u.inFlight += n
	u.counts.Requests++
	u.counts.Items += uint64(n)
	u.tellLocked(t)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.inFlight -= n
		u.tellLocked(t)
	}, nil
}

// Refusal returns the 429 of a request that would be refused whatever its items, or nil. It counts
// the refusal.
func (t *Tenant) Refusal(now time.Time) *errs.Error {
	if t == nil {
		return nil
	}
	u := t.used
	u.mu.Lock()
	defer u.mu.Unlock()
	return t.refusedLocked(1, now)
}

// refusedLocked returns the 429 of a request with n items, by what is known here of all servers, or
// nil. It counts the refusal.
func (t *Tenant) refusedLocked(n int, now time.Time) *errs.Error {
	u := t.used
	if e := t.overRateLocked(now); e != nil {
		u.counts.OverRate++
		return e
	}
	if inFlight := u.inFlight + u.others.inFlight; t.inFlight > 0 && inFlight+n > t.inFlight {
		u.counts.OverInFlight++
		return errs.OverInFlight(t.Name, inFlight, n, t.inFlight)
	}
	return nil
}

func (t *Tenant) overRateLocked(now time.Time) *errs.Error {
	if t.itemsPerSecond <= 0 {
		return nil
	}
	u := t.used
	u.fill(t.itemsPerSecond, now)
	if u.level > 0 {
		return nil
	}
	wait := time.Duration(min((-u.level)/t.itemsPerSecond*float64(time.Second)+1, 1e15))
	return errs.OverRate(t.Name, t.itemsPerSecond, wait)
}

// CheckPool returns the 403 of a request for a pool that the tenant may not use, or nil. It counts
// the request.
func (t *Tenant) CheckPool(pool string) *errs.Error {
	if t.MayUsePool(pool) {
		return nil
	}
	return t.Forbid("use pool " + errs.Quote(pool) + "; its pools are: " + strings.Join(t.pools, ", "))
}

// Forbid counts a request that the tenant may not make, and returns its 403. what ends a sentence.
func (t *Tenant) Forbid(what string) *errs.Error {
	t.used.mu.Lock()
	defer t.used.mu.Unlock()
	t.used.counts.Forbidden++
	return errs.NotAllowed(t.Name, what)
}
