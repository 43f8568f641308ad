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
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/control"
)

// startConfig returns the address of a sie-config with one model, and its epoch, of which the
// model's document and its hash are made. The config hash is of the epoch's tens: the units are in
// what it leaves out.
func startConfig(t *testing.T) (url string, epoch *atomic.Uint64) {
	t.Helper()
	epoch = &atomic.Uint64{}
	epoch.Store(10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := epoch.Load()
		if q.URL.Path == "/v1/configs/epoch" {
			fmt.Fprintf(w, `{"epoch":%d,"bundles_hash":"b","bundle_config_hashes_hash":"c%d"}`, n, n/10)
			return
		}
		fmt.Fprintf(w, `{"snapshot_version":1,"epoch":%d,"bundle_adapters":{"default":["a"]},"models":[{`+
			`"model_id":"org/m","raw_yaml":"document %d","affected_bundles":["default"],`+
			`"model_config_hashes":{"default":"hash %d"},"model_document_hash":"all of %d"}]}`,
			n, n, n/10, n)
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
	awaitHash(t, beats, "document 10")
	g.prepare("org/m")
	of := func(hash string) func(*work.Item, *nats.Msg) {
		return func(it *work.Item, _ *nats.Msg) { it.ModelConfigHash = hash }
	}
	g.publish("org/m", "r1", of("hash 1"), "a")
	if r := g.result("r1"); texts(r) != "A" {
		t.Errorf("%+v", r)
	}
	epoch.Store(20)
	if err := g.nc.Publish(bus.ConfigPrefix+lane.Bundle, []byte(`{"router_id":"sie-config-0"}`)); err != nil {
		t.Fatal(err)
	}
	awaitHash(t, beats, "document 20")
	epoch.Store(30) // nobody tells
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
	awaitHash(t, beats, "document 30")
	g.publish("org/m", "r4", of("hash 3"), "d")
	if r := g.result("r4"); texts(r) != "D" {
		t.Errorf("after the server's death: %+v", r)
	}
	g.settled(empty0)
}

// A change that the config hash leaves out, of which the worker was not told: its work waits until
// the server has the new document, work of the document before is refused, and heartbeats say which
// the server has.
func TestWorkOfAnotherDocumentWaits(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	url, epoch := startConfig(t)
	g := newGateway(t, s, "gw")
	beats := heartbeats(t, g)
	startSidecar(t, s, f, "w1", func(c *Config) { c.Control = control.Options{URL: url} })
	told := func(documents string) {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case h := <-beats:
				if h.BundleDocumentsHash == documents {
					return
				}
			case <-late:
				t.Fatalf("no heartbeat of the documents %q", documents)
			}
		}
	}
	given := func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.hash
	}
	told("all of 10")
	g.prepare("org/m")
	of := func(document string) func(*work.Item, *nats.Msg) {
		return func(it *work.Item, _ *nats.Msg) {
			it.ModelConfigHash, it.ModelDocumentHash = "hash 1", document
		}
	}
	g.publish("org/m", "r0", of("all of 10"), "a")
	if r := g.result("r0"); texts(r) != "A" {
		t.Errorf("%+v", r)
	}
	g.publish("org/m", "r1", of(""), "b") // of a gateway of the release before
	if r := g.result("r1"); texts(r) != "B" {
		t.Errorf("%+v", r)
	}
	epoch.Store(11)
	g.publish("org/m", "r2", of("all of 11"), "c")
	if r := g.result("r2"); texts(r) != "C" || !strings.Contains(given(), "document 11") {
		t.Errorf("%+v, and the server has %s", r, given())
	}
	told("all of 11")
	g.publish("org/m", "r3", of("all of 10"), "d")
	if r := g.result("r3"); r.Success || r.ErrorCode != "QUEUE_FULL" ||
		!strings.Contains(r.Error, "'org/m' was changed") {
		t.Errorf("work of a document that is gone: %+v", r)
	}
	g.settled(empty0)
}

// A server that was started again has the documents of its own files until it is given those of
// sie-config. Its work waits for that, and its heartbeats say so.
func TestWorkWaitsForTheDocuments(t *testing.T) {
	s := newConfigSim(t, 1)
	s.connectServer()
	s.connectBroker()
	c := s.c
	of := func(document string) *slice {
		return &slice{item: work.Item{ModelID: simModels[0], ModelConfigHash: fileHash,
			ModelDocumentHash: document}}
	}
	if c.other(of("d1")) {
		t.Error("it is not known what sie-config has, and work waits")
	}
	e := &control.Export{Epoch: 2, Hashes: map[string]string{simModels[0]: fileHash},
		Documents: map[string]string{simModels[0]: "d1"}}
	c.read(e, c.now)
	if !c.other(of("d1")) || c.other(of("")) {
		t.Error("work runs on the documents of files")
	}
	if h := c.heartbeat(false); h.BundleDocumentsHash == "" {
		t.Error("a server of its own files is taken for one that does not tell")
	}
	c.gave(e, &ipc.ConfigResponse{Applied: true, BundleDocumentsHash: "all"}, nil)
	if c.other(of("d1")) || !c.other(of("d2")) || c.other(of("")) {
		t.Error("what the server was given does not tell what it runs")
	}
	if h := c.heartbeat(false); h.BundleDocumentsHash != "all" {
		t.Errorf("it tells the documents %q", h.BundleDocumentsHash)
	}
	c.forgotten()
	if h := c.heartbeat(false); !c.other(of("d1")) || h.BundleDocumentsHash == "all" {
		t.Errorf("another server process: it tells the documents %q", h.BundleDocumentsHash)
	}
}
