package models

import (
	"github.com/prometheus/client_golang/prometheus"
)

// URL returns the address of sie-config, without a slash at its end.
func (b *Bootstrap) URL() string { return b.client.URL() }

// Register registers the series about sie-config: a gateway that cannot read it keeps what it has.
func (b *Bootstrap) Register(r *prometheus.Registry) {
	r.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sie_gateway_config_bootstrap_failures_total",
			Help: "Times that sie-config could not be read."}, func() float64 {
			return float64(b.failures.Load())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sie_gateway_config_bootstrap_degraded",
			Help: "1 while sie-config could not be read many times in a row."}, func() float64 {
			if _, degraded := b.Failures(); degraded {
				return 1
			}
			return 0
		}),
	)
	b.deltas.Register(r, "sie_gateway_config_deltas_total")
}
