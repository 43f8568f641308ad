package tenant

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// A quota is that of the cluster. Each server knows the whole of it: what it admits itself it takes
// off at once, what others admit when they tell. In between, what a server has admitted and the
// others do not know stays below its share of what was left when they last knew: the part that is
// its own among all servers. So what all admit together is no more than was left, but for one
// request of each server, which is admitted whatever its share is, and one more of each while what
// it tells is on its way.

// waitTold is the longest time for which a request waits until others know of those before it. What
// one tells is there in a few milliseconds, and a burst at one server of several takes some rounds
// of that; after this time the others are not to be reached.
const waitTold = time.Second

// The bounds of what is believed of another server.
const (
	// mostDebt is more than any request has items: no level is below it.
	mostDebt = 1 << 24
	// onItsWay is how much later than another a message of the same server may come.
	onItsWay = 3 * time.Second
)

// Use is what a server tells others of a tenant's use.
type Use struct {
	Name     string  `json:"name"`
	Items    uint64  `json:"items"`               // that it has admitted since it was started
	InFlight int     `json:"in_flight,omitempty"` // items
	Level    float64 `json:"level"`               // items that are left of items_per_s, as far as it knows
}

// told is what is known of one server's use.
type told struct {
	items    uint64
	inFlight int
	at       time.Time // when it was heard
}

// others is what a server knows of the others' use of one tenant's quota, and they of its own.
type others struct {
	inFlight int             // items, of all of them
	heard    map[string]told // by server
	know     told            // of this one
	changed  chan struct{}   // closed when any of it changes; nil: nobody waits
}

// shared is what the tenants of an Access have in common: the other servers.
type shared struct {
	peers   atomic.Int64 // servers beside this one
	joining atomic.Bool  // whether there are any is not known yet
	wake    chan struct{}

	mu    sync.Mutex        // taken after a usage's
	fresh map[string]*usage // by name: what the others do not know
}

// tellLocked notes that there is something to tell of a tenant with a quota.
func (u *usage) tellLocked(t *Tenant) {
	if t.itemsPerSecond == 0 && t.inFlight == 0 || u.shared.peers.Load() == 0 {
		return
	}
	s := u.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh[t.Name] = u
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// admitLocked waits until a request with n items may be admitted, or returns why it is refused.
func (t *Tenant) admitLocked(ctx context.Context, n int) *errs.Error {
	u := t.used
	var late *time.Timer
	for {
		now := time.Now()
		if e := t.refusedLocked(n, now); e != nil {
			return e
		}
		joining := u.shared.joining.Load() && (t.itemsPerSecond > 0 || t.inFlight > 0)
		if !joining && t.withinShareLocked(n) {
			return nil
		}
		if late == nil {
			late = time.NewTimer(waitTold)
			defer late.Stop()
		}
		u.tellLocked(t)
		if u.others.changed == nil {
			u.others.changed = make(chan struct{})
		}
		changed, over := u.others.changed, false
		u.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		u.mu.Lock()
		switch {
		case !over:
		case joining && t.withinShareLocked(n): // alone, as far as can be known
			return t.refusedLocked(n, time.Now())
		case t.inFlight == 0 || !t.withinRateLocked():
			u.counts.OverRate++
			return errs.OverRate(t.Name, t.itemsPerSecond, time.Second)
		default:
			u.counts.OverInFlight++
			return errs.OverInFlight(t.Name, u.inFlight+u.others.inFlight, n, t.inFlight)
		}
	}
}

// withinShareLocked reports whether a request with n items can be admitted before the others know
// of those before it.
func (t *Tenant) withinShareLocked(n int) bool {
	return t.withinRateLocked() && t.withinInFlightLocked(n)
}

// withinRateLocked is withinShareLocked for the items per second alone.
func (t *Tenant) withinRateLocked() bool {
	u := t.used
	peers, unknown := u.shared.peers.Load(), float64(u.counts.Items-u.others.know.items)
	// else it has admitted its part of what was left: level and unknown together
	return peers == 0 || t.itemsPerSecond == 0 || unknown <= 0 || u.level > float64(peers)*unknown
}

// withinInFlightLocked is withinShareLocked for the items in flight alone.
func (t *Tenant) withinInFlightLocked(n int) bool {
	u := t.used
	peers, more := u.shared.peers.Load(), u.inFlight-u.others.know.inFlight
	left := t.inFlight - u.others.inFlight - u.others.know.inFlight
	return peers == 0 || t.inFlight == 0 || more <= 0 || int64(more+n)*(peers+1) <= int64(left)
}

// changedLocked wakes whoever waits for others to know.
func (u *usage) changedLocked() {
	if u.others.changed != nil {
		close(u.others.changed)
		u.others.changed = nil
	}
}

// Share says that other servers share the quotas of the tenants, and that they are not known yet:
// requests wait for Joined, for at most a moment. It is called before the first request. The
// channel has an element when Fresh has something to tell.
func (a *Access) Share() <-chan struct{} {
	a.shared.joining.Store(true)
	return a.shared.wake
}

// Joined says that the other servers are known, as far as they can be.
func (a *Access) Joined() {
	a.shared.joining.Store(false)
	a.each((*usage).changedLocked)
}

// SetPeers sets the number of the other servers.
func (a *Access) SetPeers(n int) {
	a.shared.peers.Store(int64(n))
	a.each((*usage).changedLocked)
}

// each calls f for the use of every tenant, with its lock held.
func (a *Access) each(f func(u *usage)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.usages {
		u.mu.Lock()
		f(u)
		u.mu.Unlock()
	}
}

// Fresh returns what the others do not know, and forgets that it was asked for: what is not told is
// in All.
func (a *Access) Fresh() (out []Use) {
	s := &a.shared
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = map[string]*usage{}
	s.mu.Unlock()
	for name, u := range fresh {
		u.mu.Lock()
		out = append(out, u.useLocked(name))
		u.mu.Unlock()
	}
	return out
}

// All returns what there is to tell of every tenant with a quota that has used something.
func (a *Access) All() (out []Use) {
	for _, t := range a.current.Load().tenants {
		if t.itemsPerSecond == 0 && t.inFlight == 0 {
			continue
		}
		u := t.used
		u.mu.Lock()
		if t.itemsPerSecond > 0 && !u.at.IsZero() {
			u.fill(t.itemsPerSecond, time.Now())
		}
		if u.counts.Items > 0 || !u.at.IsZero() {
			out = append(out, u.useLocked(t.Name))
		}
		u.mu.Unlock()
	}
	return out
}

func (u *usage) useLocked(name string) Use {
	return Use{Name: name, Items: u.counts.Items, InFlight: u.inFlight, Level: u.level}
}

// Told says that all servers were told so of this one.
func (a *Access) Told(uses []Use) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range uses {
		if u := a.usages[x.Name]; u != nil {
			u.mu.Lock()
			if x.Items <= u.counts.Items { // else it was another tenant of that name
				u.others.know = told{items: x.Items, inFlight: x.InFlight}
			}
			u.changedLocked()
			u.mu.Unlock()
		}
	}
}

// Heard takes what another server tells. What it tells first of a tenant says how much is left, and
// from then on counts. What no server can have used does not count: a message that is wrong leaves
// no debt that its tenant never pays.
func (a *Access) Heard(server string, uses []Use) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, tenants := time.Now(), a.current.Load().byName
	for _, x := range uses {
		t, u := tenants[x.Name], a.usages[x.Name]
		if t == nil || u == nil || !x.possible() {
			continue
		}
		u.mu.Lock()
		was, known := u.others.heard[server]
		if t.itemsPerSecond > 0 {
			u.fill(t.itemsPerSecond, now)
			switch {
			case !known || x.Items < was.items:
				u.level = min(u.level, x.Level)
			default:
				u.level -= min(float64(x.Items-was.items), t.most(x.Level, now.Sub(was.at)))
			}
		}
		u.others.inFlight += x.InFlight - was.inFlight
		if u.others.heard == nil {
			u.others.heard = map[string]told{}
		}
		u.others.heard[server] = told{x.Items, x.InFlight, now}
		u.changedLocked()
		u.mu.Unlock()
	}
}

// possible reports whether a server can be in this state.
func (x *Use) possible() bool {
	return x.InFlight >= 0 && x.InFlight <= maxQuota && x.Level >= -mostDebt && !math.IsInf(x.Level, 1)
}

// most returns how many items a server can have admitted in a time at whose end its level is this:
// it began with no more than a burst, and what it admitted is missing.
func (t *Tenant) most(level float64, took time.Duration) float64 {
	most := max(t.itemsPerSecond*burst.Seconds(), 1)
	return max(most+t.itemsPerSecond*(took+onItsWay).Seconds()-level, 0)
}

// Gone says that a server has ended: what it had in flight counts no more.
func (a *Access) Gone(server string) { a.each(func(u *usage) { u.goneLocked(server) }) }

// Missed says that a server was not heard for long and goes on. It kept to its part meanwhile; when
// it used that is not known, so nothing is left of what may be used at once.
func (a *Access) Missed(server string) {
	a.each(func(u *usage) {
		u.level = min(u.level, 0)
		u.goneLocked(server)
	})
}

func (u *usage) goneLocked(server string) {
	if was, known := u.others.heard[server]; known {
		u.others.inFlight -= was.inFlight
		delete(u.others.heard, server)
		u.changedLocked()
	}
}
