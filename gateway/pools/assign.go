package pools

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/lease"
)

// candidate is a live worker. Home is the lane that it serves while no pool has it.
type candidate struct {
	ID    string
	Home  bus.Lane
	Ready bool
}

// fits reports whether a pool may have a worker.
func fits(s *lease.Spec, c *candidate) bool {
	_, asked := s.GPUs[c.Home.Profile]
	_, capped := s.Caps[c.Home.Profile]
	return strings.EqualFold(c.Home.Pool, s.QueuePool) && (asked || capped) &&
		(s.Bundle == "" || strings.EqualFold(c.Home.Bundle, s.Bundle))
}

// assign gives workers to pools, and takes those that are not live any more, or too many. First
// each pool, the oldest first, gets what it needs; then those with caps get more, at most limit in
// all, of what is left. A worker stays where it is unless another pool needs it. Whoever is new is
// ready.
func assign(t *lease.Table, live []candidate, limit int) (changed bool) {
	g := giving{pool: map[string]*lease.Pool{}, had: map[string]*lease.Pool{}}
	for _, p := range t.Pools {
		for _, w := range p.Assigned {
			g.had[w.ID] = p
		}
	}
	g.live = slices.Clone(live)
	slices.SortFunc(g.live, func(a, b candidate) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range t.Pools {
		for _, profile := range p.Spec.Profiles() {
			g.give(p, profile, p.Spec.Needs(profile), true)
		}
	}
	for _, p := range t.Pools {
		for _, profile := range p.Spec.Profiles() {
			if most, capped := p.Spec.Caps[profile]; capped {
				g.give(p, profile, min(most, limit-g.total(p)+g.count(p, profile)), false)
			}
		}
	}
	for _, p := range t.Pools {
		var now []lease.Worker
		for i := range g.live {
			if c := &g.live[i]; g.pool[c.ID] == p {
				now = append(now, lease.Worker{ID: c.ID, Profile: c.Home.Profile, Bundle: c.Home.Bundle})
			}
		}
		if !slices.Equal(now, p.Assigned) {
			p.Assigned, changed = now, true
		}
	}
	return changed
}

// giving is one assignment under way.
type giving struct {
	live []candidate
	pool map[string]*lease.Pool // of a worker, now
	had  map[string]*lease.Pool // of a worker, before
}

func (g *giving) count(p *lease.Pool, profile string) (n int) {
	for i := range g.live {
		if c := &g.live[i]; g.pool[c.ID] == p && c.Home.Profile == profile {
			n++
		}
	}
	return n
}

func (g *giving) total(p *lease.Pool) (n int) {
	for _, q := range g.pool {
		if q == p {
			n++
		}
	}
	return n
}

// give gives a pool workers of a profile until it has so many: its own, then those of nobody, then,
// if it may, those that another pool has beyond its needs.
func (g *giving) give(p *lease.Pool, profile string, most int, may bool) {
	have := g.count(p, profile)
	for _, from := range []func(c *candidate) bool{
		func(c *candidate) bool { return g.had[c.ID] == p },
		func(c *candidate) bool { return g.had[c.ID] == nil && c.Ready },
		func(c *candidate) bool { return may && c.Ready && g.spare(c) },
	} {
		for i := range g.live {
			c := &g.live[i]
			if have >= most {
				return
			}
			if g.pool[c.ID] == nil && c.Home.Profile == profile && fits(&p.Spec, c) && from(c) {
				g.pool[c.ID] = p
				have++
			}
		}
	}
}

// spare reports whether the pool that had a worker would have enough without it.
func (g *giving) spare(c *candidate) bool {
	q, left := g.had[c.ID], 0
	if q == nil || !fits(&q.Spec, c) {
		return true
	}
	for i := range g.live {
		x := &g.live[i]
		free := g.pool[x.ID] == nil || g.pool[x.ID] == q
		if x.ID != c.ID && g.had[x.ID] == q && free && x.Home.Profile == c.Home.Profile {
			left++
		}
	}
	return left >= q.Spec.Needs(c.Home.Profile)
}
