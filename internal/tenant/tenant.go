package tenant

import (
	"strings"
	"time"
)

// Role says which routes a token may use. Several roles are joined by |.
type Role uint8

// The roles.
const (
	Inference Role = 1 << iota // inference, models, pools and the configuration, for reading
	Metrics                    // metrics, health and status, for machines that watch
	Admin                      // changes of the configuration, where sie-config has no tokens
)

// roles holds the roles by their names in the file.
var roles = map[string]Role{"inference": Inference, "metrics": Metrics, "admin": Admin}

// Priority orders requests when there is more work than capacity: the lowest is refused first.
type Priority uint8

// The priorities. The zero value is Normal.
const (
	Normal Priority = iota
	High
	Low
)

// String returns the priority's name, as X-SIE-Priority and the file have it.
func (p Priority) String() string { return [...]string{"normal", "high", "low"}[p] }

// Rank returns 0 for the highest priority, 1 and 2 for the others.
func (p Priority) Rank() int { return [...]int{1, 0, 2}[p] }

// ParsePriority reads a priority's name in any case.
func ParsePriority(s string) (Priority, bool) {
	for _, p := range []Priority{High, Normal, Low} {
		if strings.EqualFold(s, p.String()) {
			return p, true
		}
	}
	return 0, false
}

// Tenant is one entry of the tokens file, or a plain key. It never changes; a reload makes another
// one. The nil Tenant is a caller of a server without keys: it may do everything.
type Tenant struct {
	Name  string
	Roles Role

	pools  []string // nil: all
	models []string // patterns in lower case; nil: all

	itemsPerSecond float64 // 0: no limit
	inFlight       int     // items; 0: no limit
	priority       Priority
	maxPriority    Priority
	hold           time.Duration

	used *usage
}

// Has reports whether the tenant has one of some roles.
func (t *Tenant) Has(any Role) bool { return t == nil || t.Roles&any != 0 }

// Key returns what tells the tenant from others: its name, "" for nil.
func (t *Tenant) Key() string {
	if t == nil {
		return ""
	}
	return t.Name
}

// MayUsePool reports whether the tenant may use a pool. Case does not count.
func (t *Tenant) MayUsePool(pool string) bool {
	if t == nil || t.pools == nil {
		return true
	}
	for _, p := range t.pools {
		if strings.EqualFold(p, pool) {
			return true
		}
	}
	return false
}

// Pool returns the pool of a request of the tenant that names none: the first of its own, or "" if
// it may use all.
func (t *Tenant) Pool() string {
	if t == nil || t.pools == nil {
		return ""
	}
	return t.pools[0]
}

// MayUseModel reports whether the tenant may use the model of an id, which may follow a bundle and
// ":/". A pattern is an id, which stands for all its profiles too, or the beginning of ids before a
// final *.
func (t *Tenant) MayUseModel(id string) bool {
	if t == nil || t.models == nil {
		return true
	}
	if _, model, named := strings.Cut(id, ":/"); named {
		id = model
	}
	id = strings.ToLower(id)
	for _, p := range t.models {
		if begin, some := strings.CutSuffix(p, "*"); some && strings.HasPrefix(id, begin) ||
			id == p || strings.HasPrefix(id, p+":") {
			return true
		}
	}
	return false
}

// PriorityOf returns the priority of a request that asks for one by name, "" for the tenant's own.
// A tenant gets no higher one than its highest. ok is false for a name that there is not.
func (t *Tenant) PriorityOf(asked string) (p Priority, ok bool) {
	if asked == "" {
		if t != nil {
			p = t.priority
		}
		return p, true
	}
	if p, ok = ParsePriority(asked); ok && t != nil && p.Rank() < t.maxPriority.Rank() {
		p = t.maxPriority
	}
	return p, ok
}

// Hold returns for how long requests of the tenant that do not say it themselves wait for capacity.
func (t *Tenant) Hold() time.Duration {
	if t == nil {
		return 0
	}
	return t.hold
}
