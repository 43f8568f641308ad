package control

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the series about sie-config: a worker that cannot read it serves what it
// knows, and says so in sie_worker_config_degraded.
func (f *Follower) Register(r prometheus.Registerer) {
	r.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sie_worker_config_failures_total",
			Help: "Times that sie-config could not be read."}, func() float64 {
			return float64(f.failures.Load())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sie_worker_config_degraded",
			Help: "1 while sie-config cannot be read."}, func() float64 {
			if f.failing.Load() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sie_worker_config_epoch",
			Help: "Epoch of the models that were read from sie-config last."}, func() float64 {
			return float64(f.epoch.Load())
		}),
	)
	f.deltas.Register(r, "sie_worker_config_deltas_total")
}
