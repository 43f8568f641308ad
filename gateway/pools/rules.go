package pools

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
)

// DefaultPool is the pool that every cluster has.
const DefaultPool = "default"

// Limits bounds what clients may ask. The tags make it flags of a gateway.
type Limits struct {
	Pools   int   `name:"max-pools" help:"Pools that clients may have at once." env:"SIE_GATEWAY_MAX_POOLS" default:"64" range:"0..1024"`
	TTL     int64 `name:"pool-max-ttl-s" help:"Longest time in seconds that a pool may live without a renewal." env:"SIE_GATEWAY_POOL_MAX_TTL_S" default:"3600" range:"1..604800"`
	Workers int   `name:"pool-max-workers" help:"Workers that one pool may have." env:"SIE_GATEWAY_POOL_MAX_MINIMUM_WORKER_COUNT" default:"4" range:"1..1024"`
}

// The bounds of a Spec that no operator sets.
const (
	maxProfiles = 64
	maxPinned   = 64
	maxCount    = 1 << 20
	maxName     = 63
)

// check returns what is wrong with a spec, and completes it: names get the spelling of the lanes,
// and pinned models that of the catalog. lanes are those of the operator's pools; without any,
// every profile is one. known returns a model's id.
func check(s *lease.Spec, l Limits, lanes []bus.Lane, known func(id string) (string, bool)) *errs.Error {
	if e := checkName(s.Name); e != nil {
		return e
	}
	if strings.EqualFold(s.Name, DefaultPool) || hasPool(lanes, s.Name) {
		return errs.PoolForbidden("Pool " + errs.Quote(s.Name) +
			" is the operator's: give a pool of your own another name")
	}
	if len(s.GPUs)+len(s.Caps) == 0 {
		return errs.InvalidPool("gpus", "GPU requirements are required: "+
			"give gpus, or gpu_caps, with a count for each machine profile")
	}
	if len(s.GPUs)+len(s.Caps) > maxProfiles {
		return errs.InvalidPool("gpus", "a pool has at most %d machine profiles; got %d",
			maxProfiles, len(s.GPUs)+len(s.Caps))
	}
	if s.QueuePool == "" {
		s.QueuePool = DefaultPool
	}
	if err := bus.CheckToken("queue_pool", s.QueuePool); err != nil {
		return errs.InvalidPool("queue_pool", "%v", err)
	}
	if len(lanes) > 0 {
		if !hasPool(lanes, s.QueuePool) {
			return errs.InvalidPool("queue_pool", "queue_pool %s is no pool of the operator's; those are: %s",
				errs.Quote(s.QueuePool), strings.Join(poolsOf(lanes), ", "))
		}
		lanes = slices.DeleteFunc(slices.Clone(lanes),
			func(x bus.Lane) bool { return !strings.EqualFold(x.Pool, s.QueuePool) })
		s.QueuePool = lanes[0].Pool
	}
	for _, c := range []struct {
		field  string
		counts *map[string]int
	}{{"gpus", &s.GPUs}, {"gpu_caps", &s.Caps}} {
		if e := checkProfiles(c.field, c.counts, lanes); e != nil {
			return e
		}
	}
	if s.Bundle != "" {
		if e := checkBundle(s, lanes); e != nil {
			return e
		}
	}
	return checkCounts(s, l, known)
}

func checkName(name string) *errs.Error {
	if name == "" {
		return errs.InvalidPool("name", "Pool name is required")
	}
	ok := len(name) <= maxName
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && (c == '-' || c == '_'))
	}
	if !ok {
		return errs.InvalidPool("name", "Pool name %s: 1 to %d letters, digits, '-' and '_' are allowed, "+
			"the first a letter or a digit", errs.Quote(name), maxName)
	}
	return nil
}

// checkProfiles checks the counts of one field, and spells their profiles as the lanes do.
func checkProfiles(field string, counts *map[string]int, lanes []bus.Lane) *errs.Error {
	out := make(map[string]int, len(*counts))
	for _, asked := range slices.Sorted(maps.Keys(*counts)) {
		n, name := (*counts)[asked], asked
		if n < 0 || n > maxCount {
			return errs.InvalidPool(field, "%s[%s] is %d; 0 to %d are allowed",
				field, errs.Quote(asked), n, maxCount)
		}
		if err := bus.CheckToken("machine profile", asked); err != nil {
			return errs.InvalidPool(field, "%s: %v", field, err)
		}
		if len(lanes) > 0 {
			var found bool
			if name, found = spelling(asked, lanes); !found {
				return errs.InvalidPool(field, "%s: machine profile %s is not configured; there are: %s",
					field, errs.Quote(asked), strings.Join(profilesOf(lanes), ", "))
			}
		}
		if _, twice := out[name]; twice {
			return errs.InvalidPool(field, "%s has machine profile %s twice", field, errs.Quote(name))
		}
		out[name] = n
	}
	*counts = out
	return nil
}

// spot ends the name of the machine profile that stands in for one that is not there.
const spot = "-spot"

// spelling returns a lane's profile that is asked for, in any case.
func spelling(asked string, lanes []bus.Lane) (string, bool) {
	for _, name := range []string{asked, asked + spot} {
		for _, l := range lanes {
			if strings.EqualFold(l.Profile, name) {
				return l.Profile, true
			}
		}
	}
	return "", false
}

func checkBundle(s *lease.Spec, lanes []bus.Lane) *errs.Error {
	if err := bus.CheckToken("bundle", s.Bundle); err != nil {
		return errs.InvalidPool("bundle", "%v", err)
	}
	if len(lanes) == 0 {
		return nil
	}
	for _, profile := range s.Profiles() {
		at := slices.IndexFunc(lanes, func(l bus.Lane) bool {
			return l.Profile == profile && strings.EqualFold(l.Bundle, s.Bundle)
		})
		if at < 0 {
			return errs.InvalidPool("bundle", "no lane of pool %s has machine profile %s with bundle %s",
				errs.Quote(s.QueuePool), errs.Quote(profile), errs.Quote(s.Bundle))
		}
		s.Bundle = lanes[at].Bundle
	}
	return nil
}

func checkCounts(s *lease.Spec, l Limits, known func(id string) (string, bool)) *errs.Error {
	sum := 0
	for profile, n := range s.GPUs {
		sum += n
		if most, bounded := s.Caps[profile]; bounded && most < n {
			return errs.InvalidPool("gpu_caps", "gpu_caps[%s] is %d, below the %d that gpus asks for",
				errs.Quote(profile), most, n)
		}
	}
	if sum > l.Workers {
		return errs.InvalidPool("gpus", "gpus asks for %d workers; a pool has at most %d", sum, l.Workers)
	}
	if s.Minimum < 0 || s.Minimum > l.Workers/len(s.Profiles()) {
		return errs.InvalidPool("minimum_worker_count",
			"minimum_worker_count is %d, for each of %d machine profiles; a pool has at most %d workers",
			s.Minimum, len(s.Profiles()), l.Workers)
	}
	needs := 0
	for _, profile := range s.Profiles() {
		needs += s.Needs(profile)
	}
	if needs > l.Workers {
		return errs.InvalidPool("minimum_worker_count",
			"gpus and minimum_worker_count together ask for %d workers; a pool has at most %d", needs, l.Workers)
	}
	if s.TTL < 0 || s.TTL > l.TTL {
		return errs.InvalidPool("ttl_seconds", "ttl_seconds is %d; 1 to %d are allowed", s.TTL, l.TTL)
	}
	if len(s.Pinned) > maxPinned {
		return errs.InvalidPool("pinned_models", "pinned_models has %d models; the limit is %d",
			len(s.Pinned), maxPinned)
	}
	var pinned []string
	for i, asked := range s.Pinned {
		id, ok := known(asked)
		if !ok {
			return errs.InvalidPool("pinned_models", "pinned_models[%d]: model %s is unknown",
				i, errs.Quote(asked))
		}
		if !slices.Contains(pinned, id) {
			pinned = append(pinned, id)
		}
	}
	s.Pinned = pinned
	return nil
}

// put makes a pool, or gives the pool of the name the spec, and renews it.
func put(t *lease.Table, s lease.Spec, l Limits) (made bool, err *errs.Error) {
	if p := t.Find(s.Name); p != nil {
		s.Name = p.Spec.Name
		was := p.Spec
		if p.Spec = s; !t.Fits() {
			p.Spec = was
			return false, errNoRoom()
		}
		p.Renewed = time.Time{}
		return false, nil
	}
	if len(t.Pools) >= l.Pools {
		return false, errs.PoolForbidden(
			"There are as many pools as this cluster allows: delete one first")
	}
	t.Pools = append(t.Pools, &lease.Pool{Spec: s})
	if !t.Fits() {
		t.Pools = t.Pools[:len(t.Pools)-1]
		return false, errNoRoom()
	}
	return true, nil
}

func errNoRoom() *errs.Error {
	return errs.PoolForbidden("The pools of all clients take as much room as they may: " +
		"delete one first, or pin fewer models")
}

// expire removes the pools that nobody renewed in time.
func expire(t *lease.Table, now time.Time) (names []string) {
	return t.Remove(func(p *lease.Pool) bool { return expired(p, now) })
}

// expired reports whether a pool has ended. One that is not stored yet has not.
func expired(p *lease.Pool, now time.Time) bool {
	return !p.Renewed.IsZero() && !now.Before(p.Ends())
}

// merge puts into t what a gateway knew of another bucket, and what has not expired.
func merge(t, known *lease.Table, now time.Time) (changed bool) {
	for _, p := range known.Pools {
		if expired(p, now) {
			continue
		}
		if q := t.Find(p.Spec.Name); q != nil {
			if q.Renewed.Before(p.Renewed) && !q.Renewed.IsZero() {
				q.Renewed, changed = p.Renewed, true
			}
			continue
		}
		q := *p
		q.Assigned = slices.DeleteFunc(slices.Clone(p.Assigned),
			func(w lease.Worker) bool { return t.Of(w.ID) != nil })
		t.Pools = append(t.Pools, &q)
		changed = true
	}
	if changed {
		slices.SortStableFunc(t.Pools, func(a, b *lease.Pool) int { return a.Created.Compare(b.Created) })
	}
	return changed
}

func hasPool(lanes []bus.Lane, name string) bool {
	return slices.ContainsFunc(lanes, func(l bus.Lane) bool { return strings.EqualFold(l.Pool, name) })
}

func poolsOf(lanes []bus.Lane) []string {
	return distinct(lanes, func(l bus.Lane) string { return l.Pool })
}

func profilesOf(lanes []bus.Lane) []string {
	return distinct(lanes, func(l bus.Lane) string { return l.Profile })
}

// distinct returns a part of each lane, each once, sorted.
func distinct(lanes []bus.Lane, part func(bus.Lane) string) (out []string) {
	for _, l := range lanes {
		out = append(out, part(l))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
