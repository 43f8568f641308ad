package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/service"
)

// When a device is lost, clients are sent elsewhere, and the probes tell the operator's system to
// restart the server.
func TestLostDevice(t *testing.T) {
	r := start(t, func(_ *Options, o *service.Options) {
		o.Intercept = func(*engine.Batch) error {
			return &engine.Error{Op: "run", Status: engine.StatusDeviceLost, Msg: "Xid 79"}
		}
	})
	a := r.encode(`{"items":[{"text":"the cat"}]}`)
	if a.status != 503 || a.header.Get("Retry-After") == "" || strings.Contains(string(a.body), "Xid") {
		t.Errorf("status %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	for path, want := range map[string]string{
		"/livez": "503 gpu unhealthy", "/readyz": "503 gpu unhealthy", "/healthz": "200 ok",
	} {
		if a := r.do("GET", path, ""); fmt.Sprintf("%d %s", a.status, a.body) != want {
			t.Errorf("%s: status %d %s, want %s", path, a.status, a.body, want)
		}
	}
}
