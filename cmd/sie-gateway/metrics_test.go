package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// families returns the series of a gateway by their names, as a scrape sees them.
func (s *serving) families() map[string]*dto.MetricFamily {
	s.t.Helper()
	_, text := s.get("/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *serving) untilReady() {
	s.t.Helper()
	testrig.Until(s.t, "the gateway is ready", func() bool {
		status, _ := s.get("/readyz")
		return status == 200
	})
}

// A gateway exports every series of the reference's gateway from its first scrape, with its type
// and at least its labels, and buckets that its dashboards know; and those that newer releases
// scale by. Of their labels one value is left out: no delta has the result apply_error, because a
// delta says only when to ask sie-config, and what fails then is config_bootstrap_failures_total.
func TestTheReferencesSeries(t *testing.T) {
	config := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/v1/configs/epoch":
			_, _ = io.WriteString(w, `{"epoch":3,"bundles_hash":"h"}`)
		case "/v1/configs/bundles":
			_, _ = io.WriteString(w, `{"bundles":[{"bundle_id":"default"}]}`)
		case "/v1/configs/bundles/default":
			_, _ = io.WriteString(w, "name: default\npriority: 1\nadapters: [sie_server.adapters.bert_flash]\n")
		default:
			_, _ = io.WriteString(w, `{"snapshot_version":1,"epoch":3,"models":[]}`)
		}
	}))
	defer config.Close()
	broker := bustest.Start(t, nil)
	s := serve(t, "--drain-delay 0s --nats-url "+broker.URL+" --config-url "+config.URL+" "+oneLane)
	s.untilReady()
	lane := []string{"machine_profile", "bundle"}
	latency := []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .2, .3, .5, .75, 1, 2, 5, 10, 30, 60}
	publish := []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1}
	var items []float64
	for i := 1.0; i <= 61; i += 4 {
		items = append(items, i)
	}
	wait := []float64{.01, .025, .05, .1, .2, .3, .5, .75, 1, 2, 5, 10, 30}
	const counter, gauge, histogram = dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM
	got := s.families()
	for _, c := range []struct {
		name    string
		kind    dto.MetricType
		labels  []string
		buckets []float64
		worker  bool // there is none until there is a worker, and in the reference neither
	}{
		{name: "requests_total", kind: counter, labels: []string{"endpoint", "status", "machine_profile"}},
		{name: "request_latency_seconds", kind: histogram, labels: []string{"endpoint", "machine_profile"},
			buckets: latency},
		{name: "provisioning_responses_total", kind: counter, labels: []string{"machine_profile"}},
		{name: "pending_demand", kind: gauge, labels: lane},
		{name: "active_lease_gpus", kind: gauge, labels: lane},
		{name: "rejected_requests_total", kind: counter, labels: append([]string{"reason"}, lane...)},
		{name: "workers", kind: gauge, labels: []string{"status"}},
		{name: "worker_queue_depth", kind: gauge, labels: append([]string{"worker"}, lane...), worker: true},
		{name: "worker_memory_used_bytes", kind: gauge, labels: append([]string{"worker"}, lane...),
			worker: true},
		{name: "model_workers", kind: gauge, labels: []string{"model"}, worker: true},
		{name: "queue_publish_seconds", kind: histogram, labels: []string{"operation"}, buckets: publish},
		{name: "queue_items_published", kind: histogram, labels: []string{"operation"}, buckets: items},
		{name: "queue_result_wait_seconds", kind: histogram, labels: []string{"operation"}, buckets: wait},
		{name: "queue_payload_offloads_total", kind: counter},
		{name: "queue_inbox_skips_total", kind: counter},
		{name: "queue_ack_failures_total", kind: counter},
		{name: "dlq_events_total", kind: counter, labels: []string{"stream", "consumer"}},
		{name: "dlq_republish_failures_total", kind: counter, labels: []string{"stream", "consumer"}},
		{name: "config_bootstrap_failures_total", kind: counter},
		{name: "config_bootstrap_degraded", kind: gauge},
		{name: "config_epoch", kind: gauge},
		{name: "nats_connected", kind: gauge},
		{name: "config_deltas_total", kind: counter, labels: []string{"kind", "result"}},
		{name: "pool_events_total", kind: counter, labels: []string{"event"}},
		// 0.10: what a lane is scaled by
		{name: "lane_queue_depth", kind: gauge, labels: append([]string{"pool"}, lane...)},
		{name: "model_loads_in_progress", kind: gauge, labels: append([]string{"pool"}, lane...)},
		{name: "pool_warm_floor", kind: gauge, labels: append([]string{"pool"}, lane...)},
	} {
		f := got["sie_gateway_"+c.name]
		if c.worker {
			if f != nil {
				t.Errorf("%s is there without a worker", c.name)
			}
			continue
		}
		if c.name == "lane_queue_depth" && f == nil { // the broker is asked in the background
			testrig.Until(t, "the depth is known", func() bool {
				f = s.families()["sie_gateway_"+c.name]
				return f != nil
			})
		}
		if f == nil || f.GetType() != c.kind {
			t.Errorf("%s is %v, want a %v", c.name, f.GetType(), c.kind)
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		for _, l := range c.labels {
			if !slices.Contains(labels, l) {
				t.Errorf("%s has the labels %v, without %s", c.name, labels, l)
			}
		}
		var buckets []float64
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			buckets = append(buckets, b.GetUpperBound())
		}
		if n := len(buckets); c.buckets != nil && (n == 0 || !slices.Equal(buckets[:n-1], c.buckets)) {
			t.Errorf("%s has the buckets %v, want %v", c.name, buckets, c.buckets)
		}
	}
}

// Callers make no series: 10,000 names that nobody configured, of models, profiles, pools, bundles,
// tokens and paths, in every route, add none and are in none; nor do the models of workers.
func TestNamesOfCallersAreNoLabels(t *testing.T) {
	broker := bustest.Start(t, nil)
	t.Setenv("SIE_AUTH_TOKEN", "secret")
	s := serve(t, "--drain-delay 0s --nats-url "+broker.URL+" "+oneLane)
	metrics := func() map[string]bool {
		out := map[string]bool{}
		families, err := s.series.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out[fmt.Sprint(f.GetName(), m.GetLabel())] = true
			}
		}
		return out
	}
	s.untilReady()
	const known, items = "BAAI/bge-m3", `{"items":[{"text":"a"}]}`
	send := func(method, path, body string, headers ...string) {
		q, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		q.Header.Set("Authorization", "Bearer secret")
		for i := 0; i+1 < len(headers); i += 2 {
			q.Header.Set(headers[i], headers[i+1])
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	routes := []func(name string){
		func(n string) { send("POST", "/v1/encode/"+n, items) },
		func(n string) { send("POST", "/v1/encode/default:/"+n, items) },
		func(n string) { send("POST", "/v1/encode/"+n+":/"+known, items) },
		func(n string) { send("POST", "/v1/encode/"+known+":"+n, items) },
		func(n string) { send("POST", "/v1/score/"+n, `{"query":{"text":"q"},"items":[{"text":"a"}]}`) },
		func(n string) { send("POST", "/v1/extract/"+n, items) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-Pool", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-MACHINE-PROFILE", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-MACHINE-PROFILE", n+"/"+n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-Priority", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-Hold", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-Request-ID", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "X-SIE-SDK-Version", n) },
		func(n string) { send("POST", "/v1/encode/"+known, items, "Authorization", "Bearer "+n) },
		func(n string) {
			send("POST", "/v1/encode/"+known, `{"`+n+`":1,"params":{"output_types":["`+n+`"]}}`)
		},
		func(n string) { send("POST", "/v1/embeddings", `{"model":"`+n+`","input":"a"}`) },
		func(n string) { send("POST", "/v1/rerank", `{"model":"`+n+`","query":"a","documents":["b"]}`) },
		func(n string) { send("POST", "/v2/rerank", `{"model":"`+n+`","query":"a","documents":["b"]}`) },
		func(n string) { send("GET", "/v1/models/"+n, "") },
		func(n string) { send("GET", "/v1/configs/models/"+n, "") },
		func(n string) { send("GET", "/v1/configs/models/"+n+"/status", "") },
		func(n string) { send("GET", "/v1/configs/bundles/"+n, "") },
		func(n string) { send("POST", "/v1/configs/resolve", `{"model":"`+n+`"}`) },
		func(n string) { send("GET", "/v1/pools/"+n, "") },
		func(n string) { send("POST", "/v1/pools/"+n+"/renew", "") },
		func(n string) { // a pool of this name, and requests to it
			send("POST", "/v1/pools", `{"name":"`+n+`","gpus":{"cpu":1}}`)
			send("POST", "/v1/encode/"+known, items, "X-SIE-Pool", n)
			send("DELETE", "/v1/pools/"+n, "")
			send("POST", "/v1/encode/"+known, items, "X-SIE-Pool", n)
		},
		func(n string) { send("POST", "/v1/pools", `{"name":"x","gpus":{"`+n+`":1},"bundle":"`+n+`"}`) },
		func(n string) { send("GET", "/"+n, "") },
		func(n string) { send(strings.ToUpper(n), "/v1/models", "") },
	}
	conn := broker.Connect("_INBOX_WORKER")
	beat := func(n string) {
		data := `{"name":"w","ready":false,"machine_profile":"cpu","pool_name":"default","bundle":"default",
			"loaded_models":["` + n + `"],"loading_models":["` + n + `"],"failed_models":["` + n + `"],
			"pending":{"` + n + `":{"items":1}}}`
		if err := conn.Publish("sie.health.w", []byte(data)); err != nil {
			t.Error(err)
		}
	}
	name := func(i int) string { return fmt.Sprintf("nobody-%05d", i) }
	for i := range 3 { // what each route counts by itself
		for _, route := range routes {
			route(name(90000 + i))
		}
		beat(name(90000 + i))
	}
	testrig.Until(t, "the worker is known", func() bool { return len(s.workers.Snapshot().Workers) == 1 })
	before := metrics()
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			for i := caller; i < 10_000; i += 8 {
				routes[i%len(routes)](name(i))
				if i%10 == 0 {
					beat(name(i))
				}
			}
		})
	}
	all.Wait()
	after := metrics()
	for series := range after {
		if !before[series] {
			t.Errorf("a caller made %s", series)
		}
		if strings.Contains(strings.ToLower(series), "nobody-") {
			t.Errorf("a caller's name is in %s", series)
		}
	}
	if len(before) < 100 {
		t.Errorf("only %d series: this proves nothing", len(before))
	}
}
