package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/obs"
)

// checked is a Backend whose answers are counted and checked (see whole). The series of requests
// are the Backend's own, which knows their lanes.
type checked struct {
	inference.Backend
	activity *activity
}

// Begin implements inference.Backend.
func (b checked) Begin(h inference.Head) inference.Session {
	return &checkedSession{b.Backend.Begin(h), b.activity}
}

type checkedSession struct {
	inference.Session
	activity *activity
}

// End implements inference.Session.
func (s *checkedSession) End(model string, o *api.Outcome, err error) {
	s.activity.ended(o, err)
	s.Session.End(model, o, err)
}

// registerGauges registers what is read from the snapshots at each scrape.
func (s *Server) registerGauges(r *prometheus.Registry) {
	laneLabels := []string{"pool", "machine_profile", "bundle"}
	r.MustRegister(
		obs.Gauges([]string{"status"}, func(set setGauge) {
			f, healthy := s.opt.Fleet(), 0
			for _, w := range f.Workers {
				if w.Ready() {
					healthy++
				}
			}
			set(0, float64(healthy), "healthy")
			set(0, float64(len(f.Workers)-healthy), "unhealthy")
		}, "sie_gateway_workers", "Workers that are known, by state."),
		obs.Gauges(append([]string{"worker"}, laneLabels...), func(set setGauge) {
			for _, w := range s.opt.Fleet().Workers {
				if l := w.Home; w.Live { // a client's pool is no label
					set(0, float64(w.Heartbeat.QueueDepth), w.ID, l.Pool, l.Profile, l.Bundle)
					set(1, float64(w.Heartbeat.MemoryUsed), w.ID, l.Pool, l.Profile, l.Bundle)
					set(2, w.Skew.Seconds(), w.ID, l.Pool, l.Profile, l.Bundle)
				}
			}
		}, "sie_gateway_worker_queue_depth", "Items that a worker has pulled and not answered.",
			"sie_gateway_worker_memory_used_bytes", "Memory in use on a worker's devices.",
			"sie_gateway_worker_clock_skew_seconds",
			"How far a worker's clock is before this gateway's, as its last heartbeat came."),
		obs.Gauges([]string{"model"}, func(set setGauge) {
			known := s.config()
			for _, w := range s.opt.Fleet().Workers {
				for _, id := range w.Heartbeat.LoadedModels {
					if w.Live && known.configured(id) { // a worker makes no labels up
						set(0, 1, id)
					}
				}
			}
		}, "sie_gateway_model_workers", "Live workers that have a model loaded."),
		obs.Gauges(laneLabels, func(set setGauge) {
			f := s.opt.Fleet()
			for _, l := range s.opt.Lanes {
				for i := range 3 {
					set(i, 0, l.Pool, l.Profile, l.Bundle)
				}
			}
			for _, l := range f.Lanes {
				for _, w := range l.Workers {
					h, n := w.Home, float64(len(w.Heartbeat.LoadingModels))
					set(0, n, h.Pool, h.Profile, h.Bundle)
					if w.Ready() {
						set(1, 1, h.Pool, h.Profile, h.Bundle)
						set(2, float64(w.Heartbeat.FreeCredit), h.Pool, h.Profile, h.Bundle)
					}
				}
			}
		}, "sie_gateway_model_loads_in_progress", "Models that the workers of a lane load.",
			"sie_gateway_lane_workers", "Workers of a lane that take work.",
			"sie_gateway_lane_free_credit_tokens", "Tokens that the workers of a lane would take now."),
		obs.Gauges(append(laneLabels[:3:3], "model"), func(set setGauge) {
			known := s.config()
			for _, l := range s.opt.Fleet().Lanes {
				for _, w := range l.Ready {
					for id, p := range w.Heartbeat.Pending {
						if known.configured(id) {
							h, n := w.Home, max(p.Window-p.Items, 0)
							set(0, float64(n), h.Pool, h.Profile, h.Bundle, id)
						}
					}
				}
			}
		}, "sie_gateway_model_free_slices", "Slices of a model that the workers of a lane would take now."),
		obs.Gauges(nil, func(set setGauge) {
			set(0, float64(s.opt.Fleet().Refused))
			if c := s.opt.Config(); c != nil {
				set(1, float64(c.Version.Epoch))
			}
		}, "sie_gateway_heartbeats_refused", "Heartbeats that were not accepted, since the start.",
			"sie_gateway_config_epoch", "Epoch of the configuration."),
	)
}

// setGauge sets a gauge by its index; see obs.Gauges.
type setGauge = func(gauge int, value float64, labels ...string)
