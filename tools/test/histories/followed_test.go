package histories

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/sidecar/control"
)

// everyTest is how often the followers ask here, so that a lost delta does not take 30 s.
const everyTest = 100 * time.Millisecond

// has is what somebody has: an epoch and documents.
type has struct {
	epoch  uint64
	models string // id and document of each, by id
}

// followed is a sie-config, and what follows it of a gateway and of a sidecar, all in this process.
// sie-config tells of its changes to one broker, and the followers listen at another: between both
// is the test.
type followed struct {
	t       *testing.T
	store   string
	link    *link // from the followers to sie-config
	inside  *nats.Conn
	outside *nats.Conn
	http    http.Client
	at      string // sie-config
	end     func() // of sie-config
	gateway *models.Bootstrap
	models  *models.Registry

	told, forged uint64 // deltas that the test let reach the gateway

	mu      sync.Mutex
	sidecar *control.Export
	was     map[has]bool // what sie-config has had, for a gateway and for a sidecar of the bundle
	shown   map[has]bool // what the followers had
}

const bundleName = "default"

// startFollowed starts all of it, on an empty store.
func startFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{t: t, store: filepath.Join(t.TempDir(), "store"), was: map[has]bool{},
		shown: map[has]bool{}, http: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	f.inside = bustest.Start(t, nil).Connect(bus.GatewayInboxes)
	outside := bustest.Start(t, nil)
	f.outside = outside.Connect(bus.GatewayInboxes)
	f.link = newLink(t, "")
	f.begin()
	t.Cleanup(func() { f.end() })
	quiet := slog.New(slog.DiscardHandler)
	f.models = models.New(models.Options{Fleet: fleet.New(quiet)})
	trusted := []string{"sie-config"}
	var err error
	f.gateway, err = models.NewBootstrap(models.BootstrapOptions{URL: "http://" + f.link.addr(), Log: quiet,
		Client: &f.http, Every: everyTest}, f.models)
	if err != nil {
		t.Fatal(err)
	}
	sidecar, err := control.New(control.Options{URL: "http://" + f.link.addr(), Bundle: bundleName,
		Log: quiet, Client: &f.http, Every: everyTest, Trusted: trusted,
		Read: func(e *control.Export, _ time.Time) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sidecar = e
			f.shown[ofSidecar(e)] = true
		}})
	if err != nil {
		t.Fatal(err)
	}
	conn := outside.Connect(bus.GatewayInboxes)
	if _, err = f.gateway.Listen(conn, trusted); err == nil {
		_, err = sidecar.Listen(conn)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.gateway.Run(ctx) })
	running.Go(func() { sidecar.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			f.lookAtGateway()
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return f
}

// begin starts a sie-config on the store.
func (f *followed) begin() {
	f.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	me := ledger.NewWriter("test")
	place, err := ledger.OpenPlace(f.store, me)
	if err != nil {
		f.t.Fatal(err)
	}
	l, err := ledger.Open(context.Background(), place, me, quiet)
	if err != nil {
		f.t.Fatal(err)
	}
	o := configd.Options{Ledger: l, Notifier: configd.NATS(f.inside, "sie-config-1")}
	o.Log, o.IdleGrace = quiet, time.Millisecond
	s, err := configd.New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	base, err := catalog.LoadDir("../../../configd/testdata/models")
	if err != nil {
		f.t.Fatal(err)
	}
	bundles, err := catalog.LoadBundlesDir("../../../configd/testdata/bundles")
	if err == nil {
		err = s.Set(base, bundles)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(at) }()
	f.at = "http://" + at.Addr().String()
	f.end = func() {
		if err := s.Shutdown(context.Background()); err != nil {
			f.t.Error(err)
		}
		<-served
		if err := place.Close(); err != nil {
			f.t.Error(err)
		}
	}
	f.link.lead(at.Addr().String())
	f.truth()
}

// changedModel returns a document of which a config hash has the tokens and not the width.
func changedModel(id string, dim, tokens int) string {
	return fmt.Sprintf("sie_id: %s\nhf_id: org/x\ninputs: {text: true}\ntasks: {encode: {dense: {dim: %d}}}\n"+
		"profiles:\n  default: {adapter_path: 'sie_server.adapters.bert_flash:X', max_batch_tokens: %d}\n",
		id, dim, tokens)
}

// ask asks sie-config itself, and notes what it has then.
func (f *followed) ask(method, path, body string) []byte {
	f.t.Helper()
	q, err := http.NewRequest(method, f.at+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := f.http.Do(q)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 && resp.StatusCode != 201 {
		f.t.Fatalf("%s %s: %d %.300s (%v)", method, path, resp.StatusCode, answer, err)
	}
	if method != "GET" {
		f.truth()
	}
	return answer
}

// change adds, changes or removes a model.
func (f *followed) change(r *rand.Rand) {
	id := fmt.Sprintf("new/%c", 'a'+rune(r.IntN(4)))
	if r.IntN(4) == 0 {
		f.ask("DELETE", "/v1/configs/models/"+id, "")
		return
	}
	f.ask("PUT", "/v1/configs/models/"+id, changedModel(id, 8<<r.IntN(3), 8<<r.IntN(2)))
}

// truth reads what sie-config has for a gateway and for a sidecar, and notes that it has it.
func (f *followed) truth() (gateway, sidecar has) {
	f.t.Helper()
	var a struct {
		Epoch  uint64
		Models []struct {
			ID      string   `json:"model_id"`
			YAML    string   `json:"raw_yaml"`
			Bundles []string `json:"affected_bundles"`
		}
	}
	if err := json.Unmarshal(f.ask("GET", "/v1/configs/export", ""), &a); err != nil {
		f.t.Fatal(err)
	}
	var all, some []string
	for _, m := range a.Models {
		all = append(all, m.ID+" "+m.YAML)
		if slices.Contains(m.Bundles, bundleName) {
			some = append(some, m.ID+" "+m.YAML)
		}
	}
	gateway, sidecar = hasOf(a.Epoch, all), hasOf(a.Epoch, some)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.was[gateway], f.was[sidecar] = true, true
	return gateway, sidecar
}

func hasOf(epoch uint64, documents []string) has {
	slices.Sort(documents)
	return has{epoch, strings.Join(documents, "\n")}
}

func ofSidecar(e *control.Export) has {
	var all []string
	for _, m := range e.Models {
		all = append(all, m.ID+" "+m.YAML)
	}
	return hasOf(e.Epoch, all)
}

// lookAtGateway notes what the gateway has.
func (f *followed) lookAtGateway() (now has, ok bool) {
	c := f.models.Config()
	if c == nil {
		return now, false
	}
	var all []string
	for _, m := range c.Catalog.Models() {
		all = append(all, m.ID+" "+string(m.Source()))
	}
	now = hasOf(c.Version.Epoch, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown[now] = true
	return now, true
}

// converges waits until the followers have what sie-config has, and returns that. What they showed
// until then sie-config has had.
func (f *followed) converges() has {
	f.t.Helper()
	gateway, sidecar := f.truth()
	testrig.Until(f.t, "gateway and sidecar have what sie-config has", func() bool {
		now, ok := f.lookAtGateway()
		f.mu.Lock()
		defer f.mu.Unlock()
		return ok && now == gateway && f.sidecar != nil && ofSidecar(f.sidecar) == sidecar
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for x := range f.shown {
		if !f.was[x] {
			f.t.Errorf("epoch %d was shown with what sie-config never had:\n%s", x.epoch, x.models)
		}
	}
	return gateway
}
