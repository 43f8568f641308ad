package main

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/deploy/deploytest"
	"github.com/sie-engine/sie/internal/bus/bustest"
)

// What the chart's triggers, alerts and dashboards ask of gateways is what a gateway exports.
func TestWhatIsAskedOfGatewaysIsExported(t *testing.T) {
	broker := bustest.Start(t, nil)
	g := serve(t, "--drain-delay 0s --api-key=k --config-url http://127.0.0.1:1 --nats-url "+broker.URL+
		" "+oneLane)
	wrong, found := deploytest.Missing(deploytest.Metrics(g.series), func(m string) bool {
		return strings.HasPrefix(m, "sie_gateway_") || strings.HasPrefix(m, "sie_tenant_")
	})
	for _, err := range wrong {
		t.Error(err)
	}
	if found < 80 {
		t.Errorf("%d uses were found", found)
	}
}
