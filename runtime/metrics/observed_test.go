package metrics

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/deploy/deploytest"
)

// What the chart's alerts and dashboards ask of sie-server is what it exports.
func TestWhatIsAskedOfServersIsExported(t *testing.T) {
	m := New()
	m.QueueDepth(func(func(string, int)) {})
	m.Models(func(func(string, string, int64)) {})
	m.DeviceMemory(func(func(string, int64, int64)) {})
	m.GraphsRefused(func(func(string, int64)) {})
	m.Activations(func(func(string, int64)) {})
	others := []string{"sie_gateway_", "sie_tenant_", "sie_config_", "sie_worker_", "sie_pull_loop_"}
	wrong, found := deploytest.Missing(deploytest.Metrics(m.Registry), func(m string) bool {
		for _, o := range others {
			if strings.HasPrefix(m, o) {
				return false
			}
		}
		return strings.HasPrefix(m, "sie_")
	})
	for _, err := range wrong {
		t.Error(err)
	}
	if found < 20 {
		t.Errorf("%d uses were found", found)
	}
}
