package queue

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/internal/work"
)

// metrics are the queue's series. Names of the reference keep its units and buckets.
type metrics struct {
	publish   *prometheus.HistogramVec // until all work of a request was in the queue
	published *prometheus.HistogramVec // items of a request
	wait      *prometheus.HistogramVec // until its answer

	republishes *prometheus.CounterVec
	deadLetters prometheus.Counter
	ended       prometheus.Counter
	unburied    prometheus.Counter
	dlqEvents   *prometheus.CounterVec // the reference's names of the two
	dlqFailures *prometheus.CounterVec
	skips       prometheus.Counter
	strange     prometheus.Counter
	failures    prometheus.Counter
	offloads    prometheus.Counter
	unfetched   prometheus.Counter
	undeleted   prometheus.Counter
	again       prometheus.Counter
	late        prometheus.Counter
	refused     *prometheus.CounterVec

	registry prometheus.Registerer // nil: nothing is shown
}

func newMetrics(r prometheus.Registerer) *metrics {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "sie_gateway_queue_" + name, Help: help, Buckets: buckets},
			[]string{"operation"})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "sie_gateway_" + name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "sie_gateway_" + name, Help: help}, labels)
	}
	m := &metrics{
		publish: histogram("publish_seconds", "Until all work of a request was in the queue.",
			[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1}),
		published: histogram("items_published", "Items of a request.", prometheus.LinearBuckets(1, 4, 16)),
		wait: histogram("result_wait_seconds", "From a request's first publish to its last result.",
			[]float64{.01, .025, .05, .1, .2, .3, .5, .75, 1, 2, 5, 10, 30}),
		republishes: vector("queue_republishes_total", "Slices published again, by cause.", "cause"),
		deadLetters: counter("dead_letters_total", "Slices that ended each server that ran them."),
		ended:       counter("queue_servers_ended_total", "Slices that get no more servers."),
		unburied:    counter("dlq_store_failures_total", "Dead letters that could not be stored."),
		dlqEvents: vector("dlq_events_total",
			"Dead letters, by the stream and the consumer of their work; of a client's pool, by those of its workers.",
			"stream", "consumer"),
		dlqFailures: vector("dlq_republish_failures_total",
			"Dead letters that could not be stored, by the same.", "stream", "consumer"),
		skips:     counter("queue_inbox_skips_total", "Messages for no pending request."),
		strange:   counter("queue_inbox_dropped_total", "Messages that no component of a cluster sends."),
		failures:  counter("queue_ack_failures_total", "Refusals and failures of the broker's API."),
		offloads:  counter("queue_payload_offloads_total", "Slices whose items went to the payload store."),
		unfetched: counter("queue_payload_errors_total", "Results that the payload store did not give."),
		undeleted: counter("queue_payload_leftovers_total", "Payloads that were not deleted."),
		again:     counter("queue_results_incomplete_total", "Results of which chunks were missing."),
		late:      counter("queue_late_total", "Requests whose time was up."),
		refused:   vector("queue_refusals_total", "Requests that did not begin, by reason.", "reason"),
		registry:  r,
	}
	for _, cause := range []string{
		"no_stream", "full", "server_died", "gap", "no_ack", "stream", "consumer", "silent", "not_sent",
		"unmarked", "worker_gone", "worker_restarted", "server_silent",
	} {
		m.republishes.WithLabelValues(cause)
	}
	// the families are there from the first scrape
	for _, operation := range []string{work.Encode, work.Score, work.Extract} {
		for _, h := range []*prometheus.HistogramVec{m.publish, m.published, m.wait} {
			h.WithLabelValues(operation)
		}
	}
	m.dlqEvents.WithLabelValues("", "")
	m.dlqFailures.WithLabelValues("", "")
	return m
}

// observe registers the series, with those that are read from q.
func (m *metrics) observe(q *Queue) {
	if m.registry == nil {
		return
	}
	m.registry.MustRegister(m.publish, m.published, m.wait, m.republishes, m.deadLetters, m.ended, m.unburied,
		m.dlqEvents, m.dlqFailures,
		m.skips, m.strange, m.failures, m.offloads, m.unfetched, m.undeleted, m.again, m.late, m.refused,
		obs.Gauges(nil, func(set func(int, float64, ...string)) {
			q.mu.Lock()
			defer q.mu.Unlock()
			set(0, float64(b2i(q.connected.Load())))
			set(1, float64(len(q.requests)))
		}, "sie_gateway_nats_connected", "1 while there is a connection to NATS.",
			"sie_gateway_queue_pending_requests", "Requests that wait for results."),
		obs.Gauges([]string{"pool", "machine_profile", "bundle", "model"},
			func(set func(int, float64, ...string)) {
				for _, s := range q.States() {
					labels := []string{s.Home.Pool, s.Home.Profile, s.Home.Bundle, s.Model}
					set(0, float64(s.Untaken), labels...)
					set(1, float64(s.Unanswered), labels...)
					set(2, s.Rate, labels...)
				}
			}, "sie_gateway_queue_untaken_items", "Items of this gateway that no worker has taken.",
			"sie_gateway_queue_unanswered_items", "Items of this gateway without a result.",
			"sie_gateway_queue_items_per_second", "Measured while work waits; 0: not known."),
		obs.Gauges([]string{"pool", "machine_profile", "bundle"}, func(set func(int, float64, ...string)) {
			for _, s := range q.States() {
				set(0, s.Tokens, s.Home.Pool, s.Home.Profile, s.Home.Bundle)
			}
		}, "sie_gateway_lane_queued_tokens",
			"Tokens of this gateway's requests that are not answered, estimated."))
}

// requestMetrics are the series of requests, whatever became of them.
type requestMetrics struct {
	total        *prometheus.CounterVec
	latency      *prometheus.HistogramVec
	provisioning *prometheus.CounterVec
	rejected     *prometheus.CounterVec
}

func newRequestMetrics(r prometheus.Registerer) *requestMetrics {
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "sie_gateway_" + name, Help: help}, labels)
	}
	m := &requestMetrics{
		total: vector("requests_total", "Requests, by the status of their answer; 499: the client left.",
			"endpoint", "status", "pool", "machine_profile", "bundle"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sie_gateway_request_latency_seconds", Help: "Of requests that were answered.",
			Buckets: []float64{
				.0005, .001, .002, .005, .01, .025, .05, .1, .2, .3, .5, .75, 1, 2, 5, 10, 30, 60,
			},
		}, []string{"endpoint", "machine_profile"}),
		provisioning: vector("provisioning_responses_total", "Requests that wait for machines.",
			"machine_profile"),
		rejected: vector("rejected_requests_total",
			"Requests that were not answered, and whether more machines would help.",
			"pool", "machine_profile", "bundle", "reason", "scaling_action"),
	}
	m.total.WithLabelValues("", "", "", "", "") // the families are there from the first scrape
	m.latency.WithLabelValues("", "")
	m.provisioning.WithLabelValues("")
	m.rejected.WithLabelValues("", "", "", "", "")
	if r != nil {
		r.MustRegister(m.total, m.latency, m.provisioning, m.rejected)
	}
	return m
}

// clientLeft is the status label of requests whose client left.
const clientLeft = "499"

// count counts a request that has ended. Its lane is empty if it got to none.
func (m *requestMetrics) count(endpoint string, l bus.Lane, took time.Duration, err error) {
	profile := cmp.Or(l.Profile, "unknown")
	e := errs.As(err)
	switch {
	case e == nil:
		m.total.WithLabelValues(endpoint, "200", l.Pool, profile, l.Bundle).Inc()
		m.latency.WithLabelValues(endpoint, profile).Observe(took.Seconds())
		return
	case errors.Is(err, admit.ErrClientGone):
		m.total.WithLabelValues(endpoint, clientLeft, l.Pool, profile, l.Bundle).Inc()
		return
	}
	m.total.WithLabelValues(endpoint, strconv.Itoa(e.Status), l.Pool, profile, l.Bundle).Inc()
	if e.Code == errs.Provisioning {
		m.provisioning.WithLabelValues(profile).Inc()
	}
	action := "none"
	if e.Code == errs.QueueFull || e.Code == errs.Provisioning {
		action = "scale_up"
	}
	reason := "other" // of another release: a worker must not make up labels
	if errs.Lookup(e.Code).Code == e.Code {
		reason = strings.ToLower(string(e.Code))
	}
	m.rejected.WithLabelValues(l.Pool, profile, l.Bundle, reason, action).Inc()
}
