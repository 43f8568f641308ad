package models

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
)

// defaultPool is the pool of callers and models that name none.
const defaultPool = "default"

// spot ends the name of the machine profile that stands in for one that is not there.
const spot = "-spot"

// Route is where a request goes, and with which configuration.
type Route struct {
	Lane             bus.Lane
	ModelID          string // in the catalog
	BundleConfigHash string
	ModelConfigHash  string

	// ModelDocumentHash is of all that the model's document says. "": sie-config does not say.
	ModelDocumentHash string
	Engine            string // of the bundle; "": the default
}

// Route chooses the lane of a request. profile and pool are what its headers say, "" for nothing;
// "pool/profile" in profile names both and wins over pool.
//
// Of the lanes that the caller's pool, profile and bundle leave, those with a worker of the wanted
// configuration that can never run the model are passed over. The first with a ready worker that
// may run it is taken; else the first with a ready worker; else the first. The order is that of the
// model's bundles, then that of the lanes. A pool or profile without a lane is an error and never
// makes a stream.
func (m Model) Route(profile, pool string) (Route, error) {
	id := m.Entry.ID
	if err := m.Entry.Usable(); err != nil {
		return Route{}, errs.Invalid("model", err.Error()) // as sie-server says
	}
	carriers := m.snapshot.byID[id]
	if len(carriers) == 0 {
		return Route{}, errs.NoBundle(id, m.Entry.Adapter.String())
	}
	if m.bundle != "" {
		c := m.snapshot.carrier(m.Entry, m.bundle)
		if c == nil {
			return Route{}, errs.WrongBundle(id, m.bundle, m.compatible())
		}
		carriers = []carrier{*c}
	}
	f := m.registry.opt.Fleet.Snapshot()
	if p, rest, both := strings.Cut(profile, "/"); both {
		profile = rest
		if p != "" {
			pool = p
		}
	}
	lanes, made, unknown := m.registry.made(pool)
	var err error
	if !made {
		lanes = m.registry.lanes(f)
	}
	if len(lanes) == 0 && (made || pool == "" || strings.EqualFold(pool, defaultPool)) {
		return Route{}, errs.Capacity(cmp.Or(profile, "any"), 0)
	}
	if !made {
		lanes, err = inPool(lanes, pool, m.Entry.Model.Pool)
	}
	if err != nil && unknown != nil {
		err = unknown // the pool may be a client's
	}
	if err != nil {
		return Route{}, err
	}
	if lanes, err = ofProfile(lanes, profile); err != nil {
		return Route{}, err
	}
	return m.choose(carriers, lanes, f)
}

// choose returns the route to the best of the lanes.
func (m Model) choose(carriers []carrier, lanes []bus.Lane, f *fleet.Snapshot) (Route, error) {
	id := m.Entry.ID
	var best Route
	rank, unsupported := 0, 0
	for i := range carriers {
		c := &carriers[i]
		for _, lane := range lanes {
			if !strings.EqualFold(lane.Bundle, c.Name) {
				continue
			}
			l, r := f.Lane(lane), 1
			switch {
			case l.Unsupported(m.snapshot.hashes[c.Name], id, m.Entry.BaseID):
				unsupported++
				continue
			case l.Runs(id):
				r = 3
			case !l.Empty():
				r = 2
			}
			if r > rank {
				rank, best = r, Route{Lane: lane, ModelID: id, ModelConfigHash: c.hash, Engine: c.Engine,
					BundleConfigHash: m.snapshot.hashes[c.Name].Config, ModelDocumentHash: c.document}
			}
		}
	}
	switch {
	case rank > 0:
		return best, nil
	case unsupported > 0:
		return Route{}, errs.Unsupported(id)
	}
	return Route{}, errs.NoLane(id, names(carriers), texts(lanes))
}

func names(cs []carrier) []string {
	out := make([]string, len(cs))
	for i := range cs {
		out[i] = cs[i].Name
	}
	return out
}

func texts(lanes []bus.Lane) []string {
	out := make([]string, len(lanes))
	for i, l := range lanes {
		out[i] = l.String()
	}
	return out
}

// compatible returns the names of the bundles that carry the model, in order of preference.
func (m Model) compatible() []string { return names(m.snapshot.byID[m.Entry.ID]) }

// lanes returns the configured lanes, or else those of live workers, which they serve while no
// client's pool has them.
func (r *Registry) lanes(f *fleet.Snapshot) []bus.Lane {
	if len(r.opt.Lanes) > 0 {
		return r.opt.Lanes
	}
	out := make([]bus.Lane, 0, len(f.Lanes))
	for _, l := range f.Lanes {
		for _, w := range l.Workers {
			if !slices.Contains(out, w.Home) {
				out = append(out, w.Home)
			}
		}
	}
	slices.SortFunc(out, bus.Lane.Compare)
	return out
}

// made returns the lanes of a pool that a client made, as Options.Pools does.
func (r *Registry) made(pool string) (lanes []bus.Lane, ok bool, err error) {
	if pool == "" || r.opt.Pools == nil {
		return nil, false, nil
	}
	return r.opt.Pools(pool)
}

// inPool returns the lanes of a pool. If neither the caller nor the model names one, it is the
// default pool, or any if no lane is in that.
func inPool(lanes []bus.Lane, asked, ofModel string) ([]bus.Lane, error) {
	pool := asked
	if pool == "" {
		pool = ofModel
	}
	named := pool != ""
	if !named {
		pool = defaultPool
	}
	out := where(lanes, func(l bus.Lane) bool { return strings.EqualFold(l.Pool, pool) })
	switch {
	case len(out) > 0:
		return out, nil
	case named:
		return nil, errs.UnknownPool(pool, distinct(lanes, func(l bus.Lane) string { return l.Pool }))
	}
	return lanes, nil
}

// ofProfile returns the lanes of a machine profile, or of its spot machines, or all for "".
func ofProfile(lanes []bus.Lane, profile string) ([]bus.Lane, error) {
	if profile == "" {
		return lanes, nil
	}
	for _, p := range []string{profile, profile + spot} {
		out := where(lanes, func(l bus.Lane) bool { return strings.EqualFold(l.Profile, p) })
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, errs.UnknownProfile(profile, distinct(lanes, func(l bus.Lane) string { return l.Profile }))
}

func where(lanes []bus.Lane, keep func(bus.Lane) bool) (out []bus.Lane) {
	for _, l := range lanes {
		if keep(l) {
			out = append(out, l)
		}
	}
	return out
}

// distinct returns a part of each lane, each once, in the order of the lanes.
func distinct(lanes []bus.Lane, part func(bus.Lane) string) (out []string) {
	seen := map[string]bool{}
	for _, l := range lanes {
		if p := part(l); !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}
