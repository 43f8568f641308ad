package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/deploy/deploytest"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/health"
)

// What the chart's alerts and dashboards ask of sidecars is what a sidecar exports.
func TestWhatIsAskedOfSidecarsIsExported(t *testing.T) {
	r := prometheus.NewRegistry()
	health.NewMetrics(r)
	(&control.Follower{}).Register(r)
	wrong, found := deploytest.Missing(deploytest.Metrics(r), func(m string) bool {
		return strings.HasPrefix(m, "sie_worker_") || strings.HasPrefix(m, "sie_pull_loop_")
	})
	for _, err := range wrong {
		t.Error(err)
	}
	if found < 20 {
		t.Errorf("%d uses were found", found)
	}
}
