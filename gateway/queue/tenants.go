package queue

import (
	"time"

	"github.com/sie-engine/sie/gateway/fair"
	"github.com/sie-engine/sie/internal/tenant"
)

// asker is who asks for work of a line.
type asker struct {
	tenant   string // "": nobody in particular
	priority tenant.Priority
}

// limit returns the wait from which on the asker's requests are refused: half of the usual one for
// low priority, twice it for high.
func (a asker) limit(usual time.Duration) time.Duration {
	switch {
	case usual < 0: // there is none
	case a.priority == tenant.High:
		return 2 * usual
	case a.priority == tenant.Low:
		return usual / 2
	}
	return usual
}

// tally is what a line knows of a tenant's requests of one priority.
type tally struct {
	untaken int           // items that are on their way
	lag     time.Duration // for which its slice waited that was taken last
	takenAt time.Time     // when that was
}

// waited returns for how long the slices wait that are taken now, 0 if that is not known.
func (t *tally) waited(now time.Time) time.Duration {
	if now.Sub(t.takenAt) > meterStalls {
		return 0
	}
	return t.lag
}

// tallyLocked returns the tally of somebody, made when it is new.
func (l *line) tallyLocked(key asker) *tally {
	t := l.tenants[key]
	if t == nil {
		if l.tenants == nil {
			l.tenants = map[asker]*tally{}
		}
		t = &tally{}
		l.tenants[key] = t
	}
	return t
}

// forgetTenantsLocked drops the tenants that have had no work for long.
func (l *line) forgetTenantsLocked(now time.Time) {
	for key, t := range l.tenants {
		if t.untaken == 0 && now.Sub(t.takenAt) > meterStalls {
			delete(l.tenants, key)
		}
	}
}

// backlogLocked returns the items that no worker has taken, here and on their way.
func (l *line) backlogLocked() int { return l.untaken + l.share.Waiting() }

// waitOfLocked predicts how long an item of an asker that comes now waits to be taken: behind all
// work, or behind the asker's own in its share of the rate, whichever is less. waited is for how
// long the slices have waited that are taken now. For low priority all work counts: it is what is
// refused first when there is too much, whoever has it.
func (l *line) waitOfLocked(who asker, now time.Time) (wait, waited time.Duration, known bool) {
	wait, known = l.waitLocked(now)
	waited = l.meter.waited(now)
	if !known || l.window.size == 0 || who.priority == tenant.Low {
		return wait, waited, known
	}
	rank := who.priority.Rank()
	own, waited := l.share.WaitingOf(who.tenant, rank), time.Duration(0)
	for other, t := range l.tenants {
		if other.tenant == who.tenant && other.priority.Rank() <= rank {
			own += t.untaken
		}
	}
	if own == 0 {
		return 0, 0, true
	}
	if t := l.tenants[who]; t != nil {
		waited = t.waited(now)
	}
	if first := l.share.First(who.tenant, rank); first != nil { // it may get no turn at all
		waited = max(waited, now.Sub(first.Since))
	}
	fairly := seconds(float64(own*l.share.Tenants(who.tenant)) / l.meter.rate(now))
	return min(wait, fairly), waited, true
}

// join puts a request into the line's share.
func (l *line) join(r *request) {
	parts := make([]fair.Part, len(r.slices))
	for i := range r.slices {
		s := &r.slices[i]
		for _, raw := range r.items[s.first:s.end] {
			s.cost += len(raw) + itemRoom
		}
		s.cost = min(max(s.cost, leastCost), mostWindow)
		parts[i] = fair.Part{Cost: int32(s.cost), Items: int32(s.end - s.first)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ticket = l.share.Join(r.who.tenant, r.who.priority.Rank(), parts, r.notify)
}

// itemRoom is what an item costs beside its bytes, and leastCost what a slice costs at least.
const (
	itemRoom  = 32
	leastCost = 1 << 10
)

// leave takes a request out of the line's share.
func (l *line) leave(r *request, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share.Leave(r.ticket)
	l.forgetTenantsLocked(now)
}

// claim reports whether the next of n slices that a request could send may go now. since is when it
// began to wait for that.
func (l *line) claim(r *request, n int, now time.Time) (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := r.ticket
	switch {
	case n == 0:
		t.Since = time.Time{}
	case t.Since.IsZero():
		t.Since = now
	}
	l.share.Want(t, n)
	return t.Since, n > 0 && l.share.Use(t)
}

// answered takes what the answer of a slice tells about the room of the line.
func (l *line) answered(s *slice, batch time.Duration, now time.Time) {
	if s.attempt > 0 || s.tries > 1 || s.storedAt.IsZero() || s.takenAt.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.window
	if w.size == 0 {
		return
	}
	lag := max(s.takenAt.Sub(s.storedAt), 0)
	if w.answered(s.sentAt, lag, now.Sub(s.takenAt), batch, &l.share, now) {
		l.share.SetRoom(w.size)
	}
}
