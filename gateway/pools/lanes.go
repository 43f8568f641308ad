package pools

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/obs"
)

// homes returns the lanes that the operator configured, or else those that live workers serve while
// no pool has them.
func (k *Keeper) homes() []bus.Lane {
	if len(k.opt.Lanes) > 0 {
		return k.opt.Lanes
	}
	var out []bus.Lane
	seen := map[bus.Lane]bool{}
	for _, w := range k.opt.Fleet().Workers {
		if w.Live && !seen[w.Home] {
			seen[w.Home] = true
			out = append(out, w.Home)
		}
	}
	return out
}

// of returns the lanes of a pool's workers while no pool has them, in the order of lanes.
func of(s *lease.Spec, lanes []bus.Lane) (out []bus.Lane) {
	for _, l := range lanes {
		if fits(s, &candidate{Home: l}) {
			out = append(out, l)
		}
	}
	return out
}

// Lanes returns the lanes of a pool that a client made. ok is false if there is no such pool; the
// error says that this is not known. Where no worker of it was ever heard of, there may be no lane.
func (k *Keeper) Lanes(pool string) (lanes []bus.Lane, ok bool, err error) {
	p := k.Find(pool)
	switch {
	case p == nil && !k.Known():
		return nil, false, errs.PoolsUnknown()
	case p == nil:
		return nil, false, nil
	}
	for _, l := range of(&p.Spec, k.homes()) {
		l.Pool = p.Spec.Name
		lanes = append(lanes, l)
	}
	return lanes, true, nil
}

// Home returns the lane whose workers serve a lane: of a pool that a client made, that of its queue
// pool; of any other, itself.
func (k *Keeper) Home(l bus.Lane) bus.Lane {
	if p := k.Find(l.Pool); p != nil {
		l.Pool = p.Spec.QueuePool
		for _, h := range k.homes() { // in its own spelling
			if strings.EqualFold(h.Pool, l.Pool) && h.Profile == l.Profile && h.Bundle == l.Bundle {
				return h
			}
		}
	}
	return l
}

// Leases is what pools ask of the workers of one lane.
type Leases struct {
	Workers int // that pools must have
	Missing int // of them, those that no pool has yet
	Floor   int // that pools want to be there always
}

// defaultBundle is the bundle of a pool's workers where nothing says another one.
const defaultBundle = "default"

// Leases returns what all pools ask, by the lane of the workers. It follows from the document
// alone, where lanes are configured: every gateway says the same.
func (k *Keeper) Leases() map[bus.Lane]Leases {
	out, homes := map[bus.Lane]Leases{}, k.homes()
	for _, p := range k.Pools() {
		for _, profile := range p.Spec.Profiles() {
			left := p.Spec.Needs(profile)
			add := func(l bus.Lane, n, missing int) {
				x := out[l]
				x.Workers, x.Missing = x.Workers+n, x.Missing+missing
				out[l] = x
			}
			for _, w := range p.Assigned {
				if w.Profile == profile && left > 0 {
					add(bus.Lane{Pool: p.Spec.QueuePool, Profile: profile, Bundle: w.Bundle}, 1, 0)
					left--
				}
			}
			at := bus.Lane{Pool: p.Spec.QueuePool, Profile: profile,
				Bundle: cmp.Or(p.Spec.Bundle, defaultBundle)}
			for _, l := range of(&p.Spec, homes) {
				if l.Profile == profile {
					at = l
					break
				}
			}
			if left > 0 {
				add(at, left, left)
			}
			if p.Spec.Minimum > 0 {
				x := out[at]
				x.Floor += p.Spec.Minimum
				out[at] = x
			}
		}
	}
	return out
}

// observe registers the gauges by which machines are started. Every gateway has the same numbers.
func (k *Keeper) observe(r prometheus.Registerer) {
	r.MustRegister(obs.Gauges([]string{"pool", "machine_profile", "bundle"},
		func(set func(int, float64, ...string)) {
			for _, l := range k.opt.Lanes {
				set(0, 0, l.Pool, l.Profile, l.Bundle) // a query of nothing is an error there
				set(1, 0, l.Pool, l.Profile, l.Bundle)
			}
			for l, x := range k.Leases() {
				set(0, float64(x.Workers), l.Pool, l.Profile, l.Bundle)
				set(1, float64(x.Floor), l.Pool, l.Profile, l.Bundle)
			}
		}, "sie_gateway_active_lease_gpus", "Workers of a lane that the pools of clients must have.",
		"sie_gateway_pool_warm_floor", "Workers of a lane that they want to be there always."),
		obs.Gauges([]string{"state"}, func(set func(int, float64, ...string)) {
			active, all := 0, k.Pools()
			for _, p := range all {
				if p.Active() {
					active++
				}
			}
			set(0, float64(active), "active")
			set(0, float64(len(all)-active), "pending")
		}, "sie_gateway_pools", "Pools of clients, by state."))
}
