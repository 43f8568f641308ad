package demand

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/obs"
)

// The bounds of a Tracker.
const (
	lasts    = 120 * time.Second // a demand, after its last request
	maxBeat  = 1 << 20           // bytes of a heartbeat that is read
	maxLanes = 1024              // that others may tell of
)

// Pools is what a Tracker needs of the pools of clients.
type Pools interface {
	Home(l bus.Lane) bus.Lane
	Leases() map[bus.Lane]pools.Leases
}

// Options configures a Tracker.
type Options struct {
	Router  string                 // this gateway's id
	Lanes   []bus.Lane             // that the operator configured
	Fleet   func() *fleet.Snapshot // the workers; never nil
	Pools   Pools
	Metrics prometheus.Registerer // nil: none
}

// Tracker keeps the demand of lanes. Its methods are safe for concurrent use.
type Tracker struct {
	opt Options

	mu     sync.Mutex
	own    map[bus.Lane]time.Time // until when what this gateway noted lasts
	all    map[bus.Lane]time.Time // and what all did
	depths depths

	answers bool // the broker told the depths of all queues when it was asked last
}

// New returns a tracker without demand. It registers its series.
func New(o Options) *Tracker {
	t := &Tracker{opt: o, own: map[bus.Lane]time.Time{}, all: map[bus.Lane]time.Time{}}
	if o.Metrics != nil {
		t.observe(o.Metrics)
	}
	return t
}

// Note notes that a request wanted a worker of a lane that has none.
func (t *Tracker) Note(l bus.Lane) {
	l = t.opt.Pools.Home(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	until := time.Now().Add(lasts)
	t.own[l], t.all[l] = until, until
}

// Home returns the lane whose workers serve a lane.
func (t *Tracker) Home(l bus.Lane) bus.Lane { return t.opt.Pools.Home(l) }

// Told returns what this gateway noted and what lasts, for its heartbeats.
func (t *Tracker) Told() (out []bus.LaneDemand) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clear()
	for l, until := range t.own {
		if len(out) < maxLanes {
			out = append(out, bus.LaneDemand{Lane: l, LeftMS: until.Sub(now).Milliseconds()})
		}
	}
	return out
}

// Subscribe takes what other gateways tell. The subscription ends with the connection.
func (t *Tracker) Subscribe(c *nats.Conn) error {
	_, err := c.Subscribe(bus.GatewayPrefix+"*", func(m *nats.Msg) {
		var h bus.GatewayHeartbeat
		if len(m.Data) <= maxBeat && json.Unmarshal(m.Data, &h) == nil {
			t.heard(strings.TrimPrefix(m.Subject, bus.GatewayPrefix), h.Demand)
		}
	})
	return err
}

// heard takes the demand that a gateway tells.
func (t *Tracker) heard(router string, told []bus.LaneDemand) {
	if router == t.opt.Router {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, d := range told[:min(len(told), maxLanes)] {
		left := time.Duration(min(d.LeftMS, lasts.Milliseconds())) * time.Millisecond
		if d.Lane.Validate() != nil || left <= 0 || len(t.all) >= maxLanes && t.all[d.Lane].IsZero() {
			continue
		}
		if until := now.Add(left); until.After(t.all[d.Lane]) {
			t.all[d.Lane] = until
		}
	}
	t.clear()
}

// clear removes what has ended, and returns the time. The caller holds mu.
func (t *Tracker) clear() time.Time {
	now, f := time.Now(), t.opt.Fleet()
	for _, m := range []map[bus.Lane]time.Time{t.own, t.all} {
		for l, until := range m {
			if now.After(until) || !f.Lane(l).Empty() {
				delete(m, l)
			}
		}
	}
	return now
}

// Lanes returns how many workers each lane should have so that what waits can begin: for requests
// that found none, one more than pools have taken, and what pools lack. Configured lanes without
// demand are 0.
func (t *Tracker) Lanes() map[bus.Lane]int {
	out := map[bus.Lane]int{}
	for _, l := range t.opt.Lanes {
		out[l] = 0
	}
	leases := t.opt.Pools.Leases()
	for l, x := range leases {
		if x.Missing > 0 {
			out[l] = x.Workers
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	for l := range t.all {
		out[l] = leases[l].Workers + 1
	}
	return out
}

// observe registers the gauges by which machines are started.
func (t *Tracker) observe(r prometheus.Registerer) {
	labels := []string{"pool", "machine_profile", "bundle"}
	r.MustRegister(obs.Gauges(labels, func(set func(int, float64, ...string)) {
		for l, n := range t.Lanes() {
			set(0, float64(n), l.Pool, l.Profile, l.Bundle)
		}
		for l, n := range t.Depths() {
			set(1, float64(n), l.Pool, l.Profile, l.Bundle)
		}
	}, "sie_gateway_pending_demand",
		"Workers that a lane should have so that what waits can begin; 0: nothing waits for one.",
		"sie_gateway_lane_queue_depth",
		"Slices in a lane's queue, delivered or not, of all gateways; absent while the broker does not say."),
		obs.Gauges(nil, func(set func(int, float64, ...string)) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.answers {
				set(0, 1)
				return
			}
			set(0, 0)
		}, "sie_gateway_jetstream_available",
			"1 if JetStream told of its streams and consumers when it was asked last; 0 without a quorum."))
}
