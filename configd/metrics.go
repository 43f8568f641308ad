package configd

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/obs"
)

// Metrics are the series of a Server. Their labels are routes, methods, statuses and words of this
// package: nothing that a caller makes up.
type Metrics struct {
	registry prometheus.Registerer

	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	writes    *prometheus.CounterVec
	exports   *prometheus.CounterVec
	stored    *prometheus.CounterVec
	publishes *prometheus.CounterVec
	deltas    prometheus.Counter

	storeCalls   *prometheus.CounterVec
	storeSeconds *prometheus.HistogramVec
}

// The outcomes of a request that writes.
const (
	wasChanged    = "changed"
	wasSame       = "unchanged"
	wasDry        = "dry_run"
	wasReplayed   = "replayed"
	wasConflict   = "conflict"    // 409, and an Idempotency-Key of another request
	wasRefused    = "refused"     // every other 4xx
	wasImpossible = "unavailable" // 5xx
)

// NewMetrics makes the series and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	times := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
			.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, labels)
	}
	m := &Metrics{registry: r,
		requests: counter("sie_config_http_requests_total", "Requests by route and status.",
			"method", "path", "status"),
		seconds: times("sie_config_http_request_duration_seconds", "Time of requests.", "method", "path"),
		writes: counter("sie_config_writes_total", "Requests that change the configuration, by outcome.",
			"method", "outcome"),
		exports: counter("sie_config_exports_total",
			"Exports: all models, or those that have changed since the caller's last.", "kind"),
		stored: counter("sie_config_store_writes_total",
			"Changes that the store took or did not take; the epoch is part of each.", "op", "result"),
		publishes: counter("sie_config_nats_publishes_total", "Changes that were told over NATS.", "result"),
		deltas: prometheus.NewCounter(prometheus.CounterOpts{Name: "sie_config_deltas_flushed_total",
			Help: "Deltas, one for each bundle of a change, that the broker has taken."}),
		storeCalls:   counter("sie_config_store_requests_total", "Calls of the store.", "op", "result"),
		storeSeconds: times("sie_config_store_request_duration_seconds", "Time of calls of the store.", "op"),
	}
	r.MustRegister(m.requests, m.seconds, m.writes, m.exports, m.stored, m.publishes, m.deltas, m.storeCalls,
		m.storeSeconds)
	for _, result := range []string{"success", "failure"} {
		m.stored.WithLabelValues(storeOp, result)
	}
	return m
}

// about registers what is read from a server at each scrape.
func (m *Metrics) about(s *Server) {
	m.registry.MustRegister(
		obs.Gauges(nil, func(set func(int, float64, ...string)) {
			if c := s.content.Load(); c != nil {
				set(0, float64(c.added.Epoch))
			}
			connected := 0.0
			if s.notifier != nil && s.notifier.Connected() {
				connected = 1
			}
			set(1, connected)
		}, "sie_config_epoch", "Epoch of the configuration.",
			"sie_config_nats_connected", "1 while changes can be told over NATS."),
		obs.Gauges([]string{"source"}, func(set func(int, float64, ...string)) {
			c := s.content.Load()
			if c == nil {
				return
			}
			count := map[string]float64{filesystem: 0, addedSource: 0}
			for _, e := range c.entries {
				if e.model != nil {
					count[e.source]++
				}
			}
			for source, n := range count {
				set(0, n, source)
			}
		}, "sie_config_models_total", "Models by where they are from."))
}

// storeOp is the reference's name for the writing of a change.
const storeOp = "write_model"

// counting returns a route whose requests are counted under its path.
func (m *Metrics) counting(r httpd.Route) httpd.Route {
	serve, path := r.Serve, r.Path
	if strings.HasSuffix(path, "/") {
		path += "{id}"
	}
	seconds := m.seconds.WithLabelValues(r.Method, path)
	r.Serve = func(q *httpd.Request, rest string) {
		begun := time.Now()
		serve(q, rest)
		seconds.Observe(time.Since(begun).Seconds())
		m.requests.WithLabelValues(r.Method, path, strconv.Itoa(q.Response.StatusCode())).Inc()
	}
	return r
}

// told counts what became of the deltas of a change.
func (m *Metrics) told(deltas int, warnings []string) {
	result := "success"
	for _, w := range warnings {
		if result = "partial"; strings.HasPrefix(w, publishFailed) {
			result = "failure"
			break
		}
	}
	m.publishes.WithLabelValues(result).Inc()
	if result == "success" {
		m.deltas.Add(float64(deltas))
	}
}

// outcome says what became of a request that writes.
func (w *write) outcome(status int) string {
	switch {
	case status >= 500:
		return wasImpossible
	case status == 409, w.mismatch:
		return wasConflict
	case status >= 400:
		return wasRefused
	case w.replayed:
		return wasReplayed
	case w.dry:
		return wasDry
	case w.changed:
		return wasChanged
	}
	return wasSame
}

// StoreCalled counts a call of the store: what it was, how it ended and how long it took. It is for
// ledger.Observed.
func (m *Metrics) StoreCalled(op, result string, took time.Duration) {
	m.storeCalls.WithLabelValues(op, result).Inc()
	m.storeSeconds.WithLabelValues(op).Observe(took.Seconds())
}
