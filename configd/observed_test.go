package configd_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/deploy/deploytest"
)

// What the chart's alerts and dashboards ask of sie-config is what it exports.
func TestWhatIsAskedOfConfigIsExported(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := configd.New(configd.Options{Metrics: configd.NewMetrics(r)}); err != nil {
		t.Fatal(err)
	}
	wrong, found := deploytest.Missing(deploytest.Metrics(r),
		func(m string) bool { return strings.HasPrefix(m, "sie_config_") })
	for _, err := range wrong {
		t.Error(err)
	}
	if found < 8 {
		t.Errorf("%d uses were found", found)
	}
}
