package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/control"
)

// startConfig returns the address of a sie-config with one model, and its epoch, of which the
// model's document and hash are made.
func startConfig(t *testing.T) (url string, epoch *atomic.Uint64) {
	t.Helper()
	epoch = &atomic.Uint64{}
	epoch.Store(1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := epoch.Load()
		if q.URL.Path == "/v1/configs/epoch" {
			fmt.Fprintf(w, `{"epoch":%d,"bundles_hash":"b","bundle_config_hashes_hash":"c%d"}`, n, n)
			return
		}
		fmt.Fprintf(w, `{"snapshot_version":1,"epoch":%d,"bundle_adapters":{"default":["a"]},"models":[{`+
			`"model_id":"org/m","raw_yaml":"document %d","affected_bundles":["default"],`+
			`"model_config_hashes":{"default":"hash %d"}}]}`, n, n, n)
	}))
	t.Cleanup(s.Close)
	return s.URL, epoch
}

// awaitHash waits for a heartbeat that says what the server was given.
func awaitHash(t *testing.T, beats chan bus.WorkerHeartbeat, part string) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case h := <-beats:
			if strings.Contains(h.BundleConfigHash, part) {
				return
			}
		case <-late:
			t.Fatalf("no heartbeat with %s", part)
		}
	}
}

// A server has what sie-config has: from the start, after a change that was told, and when it was
// started again. Work of a configuration that the worker does not have yet waits for it.
func TestAServerHasWhatSieConfigHas(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	url, epoch := startConfig(t)
	g := newGateway(t, s, "gw")
	beats := heartbeats(t, g)
	startSidecar(t, s, f, "w1", func(c *Config) {
		c.Control = control.Options{URL: url, Trusted: []string{"sie-config"}}
	})
	awaitHash(t, beats, "document 1")
	g.prepare("org/m")
	of := func(hash string) func(*work.Item, *nats.Msg) {
		return func(it *work.Item, _ *nats.Msg) { it.ModelConfigHash = hash }
	}
	g.publish("org/m", "r1", of("hash 1"), "a")
	if r := g.result("r1"); texts(r) != "A" {
		t.Errorf("%+v", r)
	}
	epoch.Store(2)
	if err := g.nc.Publish(bus.ConfigPrefix+lane.Bundle, []byte(`{"router_id":"sie-config-0"}`)); err != nil {
		t.Fatal(err)
	}
	awaitHash(t, beats, "document 2")
	epoch.Store(3) // nobody tells
	g.publish("org/m", "r3", of("hash 3"), "c")
	if r := g.result("r3"); texts(r) != "C" {
		t.Errorf("%+v", r)
	}
	g.publish("org/m", "r2", of("hash 2"), "b")
	if r := g.result("r2"); r.Success || r.ErrorCode != "QUEUE_FULL" ||
		!strings.Contains(r.Error, "'org/m' was changed") {
		t.Errorf("work of a configuration that is gone: %+v", r)
	}
	f.kill()
	f.start()
	awaitHash(t, beats, "document 3")
	g.publish("org/m", "r4", of("hash 3"), "d")
	if r := g.result("r4"); texts(r) != "D" {
		t.Errorf("after the server's death: %+v", r)
	}
	g.settled(empty0)
}
