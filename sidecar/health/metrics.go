package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the series of a sidecar. No label comes from outside: none grows without a bound.
type Metrics struct {
	counters map[string]*prometheus.CounterVec
	calls    *prometheus.HistogramVec
	failures prometheus.Counter
	fetches  *prometheus.HistogramVec
	bytes    prometheus.Counter
	drains   *prometheus.HistogramVec
	depth    prometheus.Gauge
	batches  prometheus.Gauge
	kept     prometheus.Gauge
}

// counted lists the counters: what happened, the series, its help, and its label or "".
var counted = [][4]string{
	{"received", "sie_worker_messages_received_total", "Work messages that came.", ""},
	{"acked", "sie_worker_messages_acked_total", "Work messages that were acknowledged.", ""},
	{"naked", "sie_worker_messages_naked_total", "Work messages that were given back.", ""},
	{"given_back", "sie_worker_slices_given_back_total", "Slices that were given back.", "reason"},
	{"dropped", "sie_worker_slices_dropped_total", "Slices that nobody waits for any more.", "reason"},
	{"config_stale", "sie_worker_config_stale_total",
		"Slices of a configuration of their model that is gone.", ""},
	{"redelivered", "sie_worker_nats_redelivery_total", "Messages of slices that are known.", "state"},
	{"bad_messages", "sie_worker_bad_messages_total", "Messages that cannot be used.", "reason"},
	{"payload_errors", "sie_worker_payload_fetch_errors_total", "Payloads that could not be read.", ""},
	{"payload_leftovers", "sie_worker_payload_leftovers_total",
		"Stored results that could not be deleted.", ""},
	{"publish_errors", "sie_worker_jetstream_ack_failures_total", "Messages that could not be sent.", ""},
	{"pull_errors", "sie_worker_nats_fetch_errors_total", "Pulls that ended without an answer.", "reason"},
	{"model_loads", "sie_pull_loop_model_loads_total", "Loads that this sidecar asked for.", ""},
	{"batches", "sie_worker_backend_batches_total", "Batches that were sent to the server.", "operation"},
	{"ipc_errors", "sie_worker_ipc_refused_total", "Batches that could not be sent to the server.", ""},
	{"outcomes", "sie_worker_backend_item_outcomes_total", "Outcomes of slices.", "disposition"},
	{"bad_outcomes", "sie_worker_backend_bad_outcomes_total", "Outcomes that belong to nothing.", "reason"},
	{"receipts", "sie_worker_receipts_total", "Replies of gateways to results.", "state"},
	{"server_died", "sie_worker_server_died_total", "Slices with which the server died.", ""},
	{"server_connected", "sie_worker_ipc_connect_total", "Connections to the server.", ""},
}

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		counters: map[string]*prometheus.CounterVec{},
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sie_worker_ipc_request_seconds", Help: "Calls of the server.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"method", "result"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sie_worker_ipc_failures_total", Help: "Calls of the server that failed.",
		}),
		fetches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sie_worker_payload_fetch_seconds", Help: "Fetches of payloads.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sie_worker_payload_bytes_total", Help: "Bytes of payloads that were fetched.",
		}),
		drains: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sie_worker_shutdown_drain_seconds", Help: "Drains.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"result"}),
		depth: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sie_worker_queue_depth", Help: "Slices in hand.",
		}),
		batches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sie_worker_inflight_batches", Help: "Batches in the server.",
		}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sie_worker_kept_result_bytes", Help: "Bytes of results without a receipt.",
		}),
	}
	for _, c := range counted {
		var labels []string
		if c[3] != "" {
			labels = []string{c[3]}
		}
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: c[1], Help: c[2]}, labels)
		if c[3] == "" {
			v.WithLabelValues() // shown from the start
		}
		m.counters[c[0]] = v
		r.MustRegister(v)
	}
	for _, state := range []string{"done", "in_hand"} { // shown from the start: a rate needs two values
		m.counters["redelivered"].WithLabelValues(state)
	}
	r.MustRegister(m.calls, m.failures, m.fetches, m.bytes, m.drains, m.depth, m.batches, m.kept)
	return m
}

// Count counts what happened, one of the names in counted, with its label.
func (m *Metrics) Count(what, label string) {
	v := m.counters[what]
	if v == nil {
		panic("health: internal error: no counter " + what)
	}
	if label == "" {
		v.WithLabelValues().Inc()
		return
	}
	v.WithLabelValues(label).Inc()
}

// Call counts a call of the server that ended.
func (m *Metrics) Call(method, result string, took time.Duration) {
	m.calls.WithLabelValues(method, result).Observe(took.Seconds())
	if result != "ok" {
		m.failures.Inc()
	}
}

// Fetched counts a fetch of a payload.
func (m *Metrics) Fetched(took time.Duration, bytes int, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.fetches.WithLabelValues(result).Observe(took.Seconds())
	m.bytes.Add(float64(bytes))
}

// Drained counts a drain.
func (m *Metrics) Drained(took time.Duration, late bool) {
	result := "ok"
	if late {
		result = "deadline"
	}
	m.drains.WithLabelValues(result).Observe(took.Seconds())
}

// Gauges sets the slices in hand, the batches in the server and the bytes of kept results.
func (m *Metrics) Gauges(depth, batches int, kept int64) {
	m.depth.Set(float64(depth))
	m.batches.Set(float64(batches))
	m.kept.Set(float64(kept))
}
