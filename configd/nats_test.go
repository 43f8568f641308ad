package configd_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
)

// A change has reached the broker, on the subject of its bundle and on that of all, when its
// request is answered; one that the broker did not take is a warning.
func TestDeltasReachTheBroker(t *testing.T) {
	broker := bustest.Start(t, nil)
	heard, err := broker.Connect(bus.GatewayInboxes).SubscribeSync(bus.ConfigPrefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	if err := heard.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	conn := broker.Connect(bus.GatewayInboxes)
	n := configd.NATS(conn, "sie-config-1")
	_, ask := start(t, directory(t, t.TempDir()), n)
	if a, v := ask("POST", modelsPath, "", document("new/a", 8)); a.status != 201 ||
		len(v["warnings"].([]any)) != 0 || v["router_id"] != "sie-config-1" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, subject := range []string{bus.ConfigPrefix + "fast", bus.ConfigAll} {
		m, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var d configd.Delta
		if err := json.Unmarshal(m.Data, &d); err != nil || m.Subject != subject ||
			d.Router != "sie-config-1" ||
			d.Epoch != 1 || d.Config != document("new/a", 8) || len(d.Hash) != 64 {
			t.Errorf("%s: %+v %v", m.Subject, d, err)
		}
	}
	broker.Stop()
	for conn.Status() == nats.CONNECTED {
		time.Sleep(time.Millisecond)
	}
	if warnings := n.Notify([]configd.Delta{{Bundle: "fast"}}); len(warnings) == 0 {
		t.Error("no warning without a broker")
	}
	if a, _ := ask("DELETE", modelsPath+"/new/a", "", ""); a.status != 503 ||
		!strings.Contains(string(a.body), "nats_unavailable") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
