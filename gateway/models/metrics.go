package models

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Deltas counts what was told of changes over NATS.
type Deltas struct{ Told, Untrusted, Broken atomic.Uint64 }

// Deltas returns what was told of changes.
func (b *Bootstrap) Deltas() *Deltas { return &b.deltas }

// URL returns the address of sie-config, without a slash at its end.
func (b *Bootstrap) URL() string { return b.base }

// Register registers the series about sie-config: a gateway that cannot read it keeps what it has.
func (b *Bootstrap) Register(r *prometheus.Registry) {
	count := func(name, help, result string, n *atomic.Uint64) prometheus.Collector {
		o := prometheus.CounterOpts{Name: name, Help: help}
		if result != "" {
			o.ConstLabels = prometheus.Labels{"result": result}
		}
		return prometheus.NewCounterFunc(o, func() float64 { return float64(n.Load()) })
	}
	const told, help = "sie_gateway_config_deltas_total", "Changes of models that were told over NATS."
	r.MustRegister(
		count("sie_gateway_config_bootstrap_failures_total", "Times that sie-config could not be read.", "",
			&b.failures),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sie_gateway_config_bootstrap_degraded",
			Help: "1 while sie-config could not be read many times in a row."}, func() float64 {
			if _, degraded := b.Failures(); degraded {
				return 1
			}
			return 0
		}),
		count(told, help, "applied", &b.deltas.Told),
		count(told, help, "rejected_untrusted", &b.deltas.Untrusted),
		count(told, help, "parse_error", &b.deltas.Broken),
	)
}
