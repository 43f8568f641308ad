package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/gateway/pools"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/internal/testrig"
)

// fakeBackend stands for the queue: it answers each item with the vector (1, 0).
type fakeBackend struct {
	mu    sync.Mutex
	heads []inference.Head
	ends  []string

	check, err error
	refusal    *inference.Refusal
	hold       chan struct{}   // if set, Encode waits until it is closed
	held       chan struct{}   // one value for each Encode that waits
	short      int             // items that are missing in the answer
	list       []api.ModelInfo // in place of its one model
	alias      bool            // the name of the model stands for it
}

func (b *fakeBackend) Begin(h inference.Head) inference.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads = append(b.heads, h)
	return &fakeSession{b: b}
}

func (b *fakeBackend) Models() []api.ModelInfo {
	if b.list != nil {
		return b.list
	}
	return []api.ModelInfo{{
		Name: "org/a", Outputs: []string{"dense"}, Dims: api.ModelDims{Dense: 2}, Loaded: true,
		State: "loaded",
		GatewayInfo: &api.GatewayInfo{
			Bundles: []string{"default"}, WorkerCount: 2, Workers: []string{"w-1", "w-2"}},
	}}
}

type fakeSession struct {
	inference.Session // nil: what is not below is not called
	b                 *fakeBackend
}

func (s *fakeSession) Model(id string) (compat.Model, error) {
	if id != "org/a" {
		return compat.Model{}, errs.UnknownModel("Model '" + id + "' not found")
	}
	return compat.Model{ID: id, Outputs: []string{"dense", "score"}}, nil
}

func (s *fakeSession) OpenAIModel(id string) (compat.Model, error) { return s.Model(id) }
func (s *fakeSession) Check() error                                { return s.b.check }

func (s *fakeSession) Refusal(string) *inference.Refusal {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.refusal
}

func (s *fakeSession) Encode(
	w *admit.Work, m compat.Model, r *api.EncodeRequest,
) (*api.EncodeResponse, error) {
	if s.b.hold != nil {
		s.b.held <- struct{}{}
		select {
		case <-s.b.hold:
		case <-w.Context().Done():
			return nil, context.Cause(w.Context())
		}
	}
	if s.b.err != nil {
		return nil, s.b.err
	}
	res := &api.EncodeResponse{Model: m.ID, Usage: &api.Usage{InputTokens: 3}, Outcome: api.Outcome{
		ModelID: m.ID, Items: len(r.Items), Tokens: 3, Pool: "default", Profile: "l4", Worker: "w-1",
		BundleHash: "abc", Alias: s.b.alias,
		Publish: 1500 * time.Microsecond, QueueWait: 2 * time.Millisecond, Fetch: time.Millisecond,
	}}
	for i := range r.Items[s.b.short:] {
		res.Items = append(res.Items, api.EncodeItem{ID: r.Items[i].ID, HasID: r.Items[i].HasID,
			Dense: &api.Dense{Dims: 2, Values: api.Vector(api.Float32, []byte{0, 0, 128, 63, 0, 0, 0, 0})}})
	}
	return res, nil
}

func (s *fakeSession) End(model string, o *api.Outcome, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	text := model + " ok"
	if err != nil {
		text = model + " " + string(errs.As(err).Code)
	}
	s.b.ends = append(s.b.ends, text)
}

// rig is a gateway's server on a loopback port.
type rig struct {
	*Server
	t       *testing.T
	url     string
	backend *fakeBackend
	fleet   *fleet.Fleet
	models  *models.Registry
	said    string // the hash of each model's document that configure sets; "": not told
	pools   *pools.Keeper
	log     *testrig.Log
	http    *http.Client

	mu      sync.Mutex
	missing string // what the server waits for
}

var testLanes = []bus.Lane{
	{Pool: "default", Profile: "l4", Bundle: "default"}, {Pool: "team", Profile: "h100", Bundle: "fast"},
}

// start serves until the test ends, and fails the test if goroutines are left over.
func start(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, a goroutine that stays
	leftOver := testrig.Goroutines(t)
	r := &rig{t: t, backend: &fakeBackend{}, log: &testrig.Log{},
		http: &http.Client{Transport: &http.Transport{}}}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.fleet = fleet.New(logger)
	r.fleet.Connected()
	r.models = models.New(models.Options{Lanes: testLanes, Fleet: r.fleet})
	r.pools = pools.New(pools.Options{Lanes: testLanes, Fleet: r.fleet.Snapshot, Log: logger,
		Limits: pools.Limits{Pools: 3, TTL: 3600, Workers: 4},
		Models: func(id string) (string, bool) {
			m, err := r.models.Find(id)
			if err != nil {
				return "", false
			}
			return m.Entry.ID, true
		}})
	r.knowPools()
	opt := Options{
		Options: httpd.Options{Log: logger, WorkerIdle: 100 * time.Millisecond,
			Gate: admit.New(admit.Options{})},
		Backend: r.backend, Fleet: r.fleet.Snapshot, Config: r.models.Config, Lanes: testLanes,
		Pools: r.pools, Registry: obs.NewRegistry(), StatusInterval: 10 * time.Millisecond,
		Missing: func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.missing
		},
	}
	if change != nil {
		change(&opt)
	}
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	r.Server, r.url = s, "http://"+l.Addr().String()
	t.Cleanup(func() {
		r.http.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		leftOver()
	})
	return r
}

// noPools is a broker that told once that there are no pools, and is away now.
type noPools struct{ pools.Store }

func (noPools) Look(context.Context, lease.View) (lease.View, error) {
	return lease.View{}, nats.ErrNoServers
}

func (noPools) Follow(ctx context.Context, _ <-chan struct{}, each func(lease.View, error)) error {
	each(lease.At(time.Time{}, 0, &lease.Table{}, time.Now()), nil)
	<-ctx.Done()
	return nil
}

// knowPools has the rig's gateway see that there are no pools.
func (r *rig) knowPools() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.pools.Run(ctx, noPools{}) }()
	testrig.Until(r.t, "the pools are known", r.pools.Known)
	stop()
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
}

func (r *rig) wait(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = what
}

// answer is a complete response.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers come in pairs.
func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return reply{}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Error(err) // not Fatal: other goroutines call do
		return reply{}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// get reads a JSON answer into v.
func (r *rig) get(path string, v any) {
	r.t.Helper()
	a := r.do("GET", path, "")
	if a.status != 200 || a.header.Get("Content-Type") != "application/json" {
		r.t.Fatalf("%s: %d %v %s", path, a.status, a.header, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		r.t.Fatalf("%s: %v: %s", path, err, a.body)
	}
}

// worker lets a worker of a lane publish a heartbeat.
func (r *rig) worker(id string, l bus.Lane, change func(*bus.WorkerHeartbeat)) {
	r.t.Helper()
	hb := bus.WorkerHeartbeat{Name: id, Ready: true, PoolName: l.Pool, MachineProfile: l.Profile,
		Bundle: l.Bundle, GPUCount: 1}
	if change != nil {
		change(&hb)
	}
	data, err := json.Marshal(hb)
	if err != nil {
		r.t.Fatal(err)
	}
	r.fleet.Heartbeat(bus.HealthPrefix+id, data)
}

// configure gives the gateway two models and two bundles.
func (r *rig) configure(epoch uint64) {
	r.t.Helper()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	model := func(id string, modules ...string) *fstest.MapFile {
		text := "sie_id: " + id + "\nhf_id: org/w\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n"
		for i, m := range modules {
			text += "  " + []string{"default", "zfast"}[i] + ":\n    adapter_path: sie_server.adapters." + m +
				":A\n    max_batch_tokens: 8\n"
		}
		return file(text)
	}
	c, err := catalog.Load(fstest.MapFS{
		"a.yaml": model("org/a", "sentence_transformer", "bert_flash"), "b.yaml": model("org/b",
			"bert_flash"),
		"c.yaml": model("org/c", "nomic_flash"),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := catalog.LoadBundles(fstest.MapFS{
		"d.yaml": file("name: default\npriority: 10\nadapters: [sie_server.adapters.sentence_transformer]\n"),
		"f.yaml": file("name: fast\npriority: 20\nengine: candle\nadapters: [sie_server.adapters.bert_flash]\n"),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	said := map[string]string{}
	for _, m := range c.Models() {
		said[m.ID] = r.said
	}
	r.models.SetSaid(c, b, models.Version{Epoch: epoch}, said)
}

func httpRequest(ctx context.Context, url, body string) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
}
