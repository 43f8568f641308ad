package queue

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/obs"
)

// demandFor is how long a request for a lane without workers asks for one.
const demandFor = 120 * time.Second

// demand knows the lanes that requests wanted and that had no ready worker. There are no more than
// the cluster has lanes.
type demand struct {
	mu    sync.Mutex
	until map[bus.Lane]time.Time
}

func (d *demand) note(l bus.Lane, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until[l] = now.Add(demandFor)
}

// observe registers the gauge by which machines are started.
func (d *demand) observe(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(obs.Gauges([]string{"pool", "machine_profile", "bundle"},
		func(set func(int, float64, ...string)) {
			now := time.Now()
			d.mu.Lock()
			defer d.mu.Unlock()
			for l, until := range d.until {
				if now.After(until) {
					delete(d.until, l)
					continue
				}
				set(0, 1, l.Pool, l.Profile, l.Bundle)
			}
		}, "sie_gateway_pending_demand", "1 for a lane that requests wanted and that had no ready worker."))
}
