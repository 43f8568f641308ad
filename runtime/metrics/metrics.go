package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/obs"
)

// Metrics holds the series of a worker. It is safe for concurrent use.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	batch    *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
	items    *prometheus.HistogramVec
	cost     *prometheus.HistogramVec
	run      *prometheus.HistogramVec

	totals totals

	nonFinite *prometheus.CounterVec

	oomAttempted, oomSucceeded, oomTerminal, oomEvictions, oomSplits *prometheus.CounterVec
}

// Outcome is how a request ended: the status label of sie_requests_total.
type Outcome string

// The outcomes of a request. A rejected request never reached a queue.
const (
	Success   Outcome = "success"
	Error     Outcome = "error"
	QueueFull Outcome = "queue_full"
	Rejected  Outcome = "rejected"
	Cancelled Outcome = "cancelled"
)

// New returns metrics on a new registry, which also has the Go and process collectors.
func New() *Metrics {
	r := obs.NewRegistry()
	m := &Metrics{
		Registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sie_requests_total",
			Help: "Requests by model, endpoint and outcome."}, []string{"model", "endpoint", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sie_request_duration_seconds",
			Help:    "Duration of successful requests by phase: total, queue, tokenize, inference.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}},
			[]string{"model", "endpoint", "phase"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sie_batch_size",
			Help:    "Items of a request.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}, []string{"model"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sie_tokens_processed_total",
			Help: "Tokens that went through the model, special tokens included."}, []string{"model"}),
		items: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sie_device_batch_items",
			Help:    "Sequences of a batch on the device.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}, []string{"model"}),
		cost: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sie_device_batch_tokens",
			Help:    "Tokens of a batch on the device.",
			Buckets: prometheus.ExponentialBuckets(16, 2, 12),
		}, []string{"model"}),
		run: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sie_device_batch_seconds",
			Help:    "Time of a batch on the device.",
			Buckets: prometheus.ExponentialBuckets(.0005, 2, 15),
		}, []string{"model"}),
		nonFinite: byModel("sie_nonfinite_items_total",
			"Items that failed because the model gave NaN or infinity for them."),
		oomAttempted: byModel("sie_oom_recoveries_attempted_total",
			"Batches that found too little device memory."),
		oomSucceeded: byModel("sie_oom_recoveries_succeeded_total",
			"Batches that found too little device memory and came through after all."),
		oomTerminal: byModel("sie_oom_terminal_failures_total",
			"Batches of which an item found too little device memory even alone."),
		oomEvictions: byModel("sie_oom_evictions_triggered_total", "Models unloaded for a batch."),
		oomSplits: byModel("sie_oom_batch_splits_total",
			"Times that a batch or a part of it was halved for lack of memory."),
	}
	r.MustRegister(m.requests, m.duration, m.batch, m.tokens, m.items, m.cost, m.run, m.nonFinite,
		m.oomAttempted, m.oomSucceeded, m.oomTerminal, m.oomEvictions, m.oomSplits)
	return m
}

func byModel(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"model"})
}

// Request counts one finished request. For a model that is not in the catalog, model must be "", so
// that clients cannot grow the set of labels.
func (m *Metrics) Request(model, endpoint string, o Outcome) {
	m.requests.WithLabelValues(model, endpoint, string(o)).Inc()
	if o == Success {
		m.totals.requests.Add(1)
	} else {
		m.totals.failed.Add(1)
	}
}

// Served observes one successful request. Phases that took no time are left out.
func (m *Metrics) Served(model, endpoint string, items, tokens int, t api.Timings) {
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"total", t.Total}, {"queue", t.BatchWait}, {"tokenize", t.Tokenize}, {"inference", t.Inference}} {
		if x.d > 0 {
			m.duration.WithLabelValues(model, endpoint, x.name).Observe(x.d.Seconds())
		}
	}
	m.batch.WithLabelValues(model).Observe(float64(items))
	m.tokens.WithLabelValues(model).Add(float64(tokens))
	m.totals.items.Add(int64(items))
	m.totals.tokens.Add(int64(tokens))
}

// Batch observes one batch that ran on a device for the time run.
func (m *Metrics) Batch(model string, items, tokens int, run time.Duration) {
	m.items.WithLabelValues(model).Observe(float64(items))
	m.cost.WithLabelValues(model).Observe(float64(tokens))
	m.run.WithLabelValues(model).Observe(run.Seconds())
	m.totals.batches.Add(1)
	m.totals.batchItems.Add(int64(items))
	m.totals.batchTokens.Add(int64(tokens))
	m.totals.busy.Add(int64(run))
}

// NonFinite counts items for which the model gave NaN or infinity.
func (m *Metrics) NonFinite(model string, items int) {
	m.nonFinite.WithLabelValues(model).Add(float64(items))
}

// Recovered counts a batch that found too little device memory. evictions and splits say how many
// models were unloaded and how often it was halved; failed, that an item still failed in the end.
func (m *Metrics) Recovered(model string, evictions, splits int, failed bool) {
	m.oomAttempted.WithLabelValues(model).Inc()
	if failed {
		m.oomTerminal.WithLabelValues(model).Inc()
	} else {
		m.oomSucceeded.WithLabelValues(model).Inc()
	}
	m.oomEvictions.WithLabelValues(model).Add(float64(evictions))
	m.oomSplits.WithLabelValues(model).Add(float64(splits))
}
