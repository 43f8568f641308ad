package control

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the series about sie-config: a worker that cannot read it serves what it
// knows, and says so in sie_worker_config_degraded.
func (f *Follower) Register(r prometheus.Registerer) {
	count := func(name, help, result string, n *atomic.Uint64) prometheus.Collector {
		o := prometheus.CounterOpts{Name: name, Help: help}
		if result != "" {
			o.ConstLabels = prometheus.Labels{"result": result}
		}
		return prometheus.NewCounterFunc(o, func() float64 { return float64(n.Load()) })
	}
	const told, help = "sie_worker_config_deltas_total", "Changes of models that were told over NATS."
	r.MustRegister(
		count("sie_worker_config_failures_total", "Times that sie-config could not be read.", "",
			&f.failures),
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
		count(told, help, "applied", &f.told),
		count(told, help, "rejected_untrusted", &f.untrusted),
		count(told, help, "parse_error", &f.unreadable),
	)
}
