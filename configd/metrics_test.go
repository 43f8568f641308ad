package configd_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/configd/ledger"
)

// series returns the values of counters and gauges, and the counts of histograms, by name and
// labels.
func series(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric != "sie_config_models_total" { // a gauge: the reference's name
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// What happens is counted: requests by route, writes by outcome, exports, calls of the store,
// deltas. No label is a text of a caller.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := configd.NewMetrics(registry)
	broken := &breaking{Place: directory(t, t.TempDir()), err: errors.New("full")}
	place := ledger.Observed(broken, m.StoreCalled)
	quiet := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(context.Background(), place, ledger.NewWriter("test"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	e := &ear{}
	s, ask := serveWith(t, configd.Options{Ledger: l, Notifier: e, Metrics: m})
	if len(series(t, registry)) == 0 {
		t.Error("nothing before there are models")
	}
	load(t, s)
	do := func(method, path, key, body string, status int) {
		t.Helper()
		if a := ask(method, path, map[string]string{"Idempotency-Key": key}, body); a.status != status {
			t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
		}
	}
	do("POST", modelsPath, "k", document("secret/a", 8), 201)
	do("POST", modelsPath, "k", document("secret/a", 8), 201)
	do("POST", modelsPath, "k", document("secret/a", 9), 422)
	do("POST", modelsPath, "", document("secret/a", 8), 200)
	do("POST", modelsPath, "", document("secret/a", 9), 409)
	do("POST", modelsPath, "", "no document", 400)
	do("POST", modelsPath+"?dry_run=1", "", document("secret/b", 8), 200)
	do("PUT", modelsPath+"/secret/a", "", document("secret/a", 9), 200)
	broken.n = 1
	do("DELETE", modelsPath+"/secret/a", "", "", 503)
	e.away = true
	do("DELETE", modelsPath+"/secret/a", "", "", 503)
	do("GET", modelsPath+"/secret/none", "", "", 404)
	do("GET", "/v1/configs/export", "", "", 200)
	do("GET", "/v1/configs/export?since=", "", "", 200)
	do("GET", "/v1/configs/epoch", "", "", 200)
	got := series(t, registry)
	for name, want := range map[string]float64{
		"sie_config_epoch": 2, "sie_config_nats_connected": 0,
		"sie_config_models_total api": 1, "sie_config_models_total filesystem": 5,
		"sie_config_writes_total POST changed": 1, "sie_config_writes_total POST replayed": 1,
		"sie_config_writes_total POST conflict": 2, "sie_config_writes_total POST unchanged": 1,
		"sie_config_writes_total POST refused": 1, "sie_config_writes_total POST dry_run": 1,
		"sie_config_writes_total PUT changed": 1, "sie_config_writes_total DELETE unavailable": 2,
		"sie_config_store_writes_total write_model success": 2,
		"sie_config_store_writes_total write_model failure": 1,
		"sie_config_exports_total all":                      2, "sie_config_nats_publishes_total failure": 2,
		"sie_config_http_requests_total POST /v1/configs/models 201":        2,
		"sie_config_http_requests_total GET /v1/configs/models/{id} 404":    1,
		"sie_config_http_request_duration_seconds GET /v1/configs/epoch":    1,
		"sie_config_http_requests_total DELETE /v1/configs/models/{id} 503": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if got["sie_config_store_requests_total put error"] != 1 ||
		got["sie_config_store_requests_total put ok"] < 3 ||
		got["sie_config_store_request_duration_seconds get"] == 0 {
		t.Errorf("calls of the store: %v", got)
	}
	for name := range got {
		if strings.Contains(name, "secret") {
			t.Errorf("a caller's text is a label: %s", name)
		}
	}
}
