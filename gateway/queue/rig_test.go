package queue

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/work"
)

// lane is the lane of the tests, and modelID a model of it.
var lane = bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}

const modelID = "org/dense"

// rig is a gateway's queue over a real broker.
type rig struct {
	t       *testing.T
	server  *bustest.Server
	conn    *nats.Conn
	queue   *Queue
	fleet   *fleet.Fleet
	backend *Backend
	gate    *admit.Gate
	demand  noted
}

// noted keeps the lanes that requests wanted.
type noted struct {
	mu    sync.Mutex
	lanes []bus.Lane
}

func (n *noted) Note(l bus.Lane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lanes = append(n.lanes, l)
}

func (n *noted) Home(l bus.Lane) bus.Lane {
	if strings.HasPrefix(l.Pool, "of-client-") {
		l.Pool = lane.Pool
	}
	return l
}

func (n *noted) Told() []bus.LaneDemand { return nil }

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	g := &rig{t: t, server: bustest.Start(t, nil), fleet: fleet.New(slog.New(slog.DiscardHandler)),
		gate: admit.New(admit.Options{MaxHeldBytes: 1 << 30})}
	o := Options{Router: "gw-1", Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	if change != nil {
		change(&o)
	}
	var err error
	if g.queue, err = New(o); err != nil {
		t.Fatal(err)
	}
	g.conn, err = bus.Connect(bus.Options{URL: g.server.URL, Name: "gateway", Inboxes: bus.GatewayInboxes,
		Log: slog.New(slog.DiscardHandler), Connected: g.queue.Connected, Disconnected: g.queue.Disconnected})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.queue.Start(g.conn); err != nil {
		t.Fatal(err)
	}
	r := models.New(models.Options{Lanes: []bus.Lane{lane}, Fleet: g.fleet})
	c, b, v := testCatalog(t)
	r.SetSaid(c, b, v, map[string]string{modelID: documentHash})
	g.fleet.Connected()
	g.ready("w1")
	g.backend = NewBackend(g.queue, r, g.fleet, &g.demand)
	t.Cleanup(func() {
		if n := g.gate.Running(); n != 0 {
			t.Errorf("%d requests run at the end", n)
		}
		if n := g.gate.Held(); n != 0 {
			t.Errorf("%d bytes are held at the end", n)
		}
		g.empty()
		g.queue.Close()
		g.conn.Close()
		g.server.Stop()
		eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= goroutines+3 })
	})
	return g
}

// empty checks that nothing is pending.
func (g *rig) empty() {
	g.t.Helper()
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if n := len(g.queue.requests); n != 0 {
		g.t.Errorf("%d requests are pending", n)
	}
	for _, l := range g.queue.lines {
		if l.untaken != 0 || l.unanswered != 0 || l.waiting != 0 || l.requests != 0 {
			g.t.Errorf("%s: %d untaken, %d unanswered, %d waiting, %d requests",
				l.subject, l.untaken, l.unanswered, l.waiting, l.requests)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		fmt.Print(string(b))
	}
	return len(b), nil
}

// eventually waits for a condition that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// documentHash is what sie-config says of the document of modelID.
const documentHash = "all of it"

func testCatalog(t *testing.T) (*catalog.Catalog, catalog.Bundles, models.Version) {
	t.Helper()
	docs := fstest.MapFS{}
	for id, tasks := range map[string]string{
		modelID: "{encode: {dense: {dim: 4}}}", "org/score": "{score: {}}", "org/find": "{extract: {}}",
		"org/other": "{encode: {dense: {dim: 4}}}",
	} {
		docs[strings.ReplaceAll(id, "/", "-")+".yaml"] = &fstest.MapFile{Data: []byte("sie_id: " + id +
			"\nhf_id: org/weights\ninputs: {text: true}\ntasks: " + tasks + "\nprofiles:\n  default:\n" +
			"    adapter_path: sie_server.adapters.sentence_transformer:A\n    max_batch_tokens: 8\n")}
	}
	c, err := catalog.Load(docs)
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.LoadBundles(fstest.MapFS{"a.yaml": {Data: []byte(
		"name: default\npriority: 10\nadapters: [sie_server.adapters.sentence_transformer]\n")}})
	if err != nil {
		t.Fatal(err)
	}
	return c, b, models.Version{}
}

// ready makes a worker known to the fleet.
func (g *rig) ready(id string) {
	g.t.Helper()
	data, err := json.Marshal(bus.WorkerHeartbeat{Name: id, Ready: true, PoolName: lane.Pool,
		MachineProfile: lane.Profile, Bundle: lane.Bundle})
	if err != nil {
		g.t.Fatal(err)
	}
	g.fleet.Heartbeat(bus.HealthPrefix+id, data)
}

// encode sends a request for the vectors of texts.
func (g *rig) encode(texts ...string) (*api.EncodeResponse, error) {
	return g.encodeAs(context.Background(), inference.Head{}, texts...)
}

func (g *rig) encodeAs(ctx context.Context, h inference.Head, texts ...string) (*api.EncodeResponse, error) {
	return g.encodeWith(ctx, h, modelID, texts...)
}

func (g *rig) encodeWith(
	ctx context.Context, h inference.Head, model string, texts ...string,
) (*api.EncodeResponse, error) {
	s := g.backend.Begin(h)
	m, err := s.Model(model)
	if err != nil {
		return nil, err
	}
	w, err := g.gate.Enter(admit.Request{})
	if err != nil {
		return nil, err
	}
	defer w.End()
	stop := context.AfterFunc(ctx, func() { w.Cancel(context.Cause(ctx)) })
	defer stop()
	q := &api.EncodeRequest{Items: make([]api.Item, len(texts))}
	for i, t := range texts {
		q.Items[i] = api.Item{Text: t, HasText: true, ID: fmt.Sprint("id", i), HasID: i%2 == 0}
	}
	return s.Encode(w, m, q)
}

// check checks the answer to encode.
func check(t *testing.T, res *api.EncodeResponse, err error, texts ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("%.80q…: %v", texts, err)
		return
	}
	if len(res.Items) != len(texts) || res.Model != modelID || res.ModelID != modelID || res.Worker == "" {
		t.Errorf("%d items of %q by %q", len(res.Items), res.Model, res.Worker)
		return
	}
	tokens := 0
	for i, text := range texts {
		it := &res.Items[i]
		tokens += len(text)
		if it.Dense == nil || string(it.Dense.Values.Data) != string(vector(text)) ||
			it.HasID != (i%2 == 0) || it.HasID && it.ID != fmt.Sprint("id", i) {
			t.Errorf("item %d of %d: %+v", i, len(texts), it)
			return
		}
	}
	if res.Usage.InputTokens != tokens || res.Tokens != tokens {
		t.Errorf("%d tokens, want %d", res.Usage.InputTokens, tokens)
	}
}

// vector is the answer of the fake server to a text.
func vector(text string) []byte {
	out := make([]byte, 0, 16)
	for i := range 4 {
		h := uint32(i)
		for _, c := range []byte(text) {
			h = h*31 + uint32(c)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(h%1000)))
	}
	return out
}

// sidecar is a worker that answers as the protocol says, and does what a test tells it by the text
// of a slice's first item.
type sidecar struct {
	t     *testing.T
	id    string
	model string
	conn  *nats.Conn
	js    jetstream.JetStream
	ctx   context.Context
	all   sync.WaitGroup

	// act may take a slice out of the sidecar's hands: it returns true if it did.
	act func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool

	mu       sync.Mutex
	ran      map[string]int // times that a slice was run, by id
	receipts []string
	cancels  []string
}

func (g *rig) sidecar(id string, act func(*sidecar, jetstream.Msg, *work.Item, []string) bool) *sidecar {
	g.t.Helper()
	return g.sidecarFor(modelID, id, act)
}

func (g *rig) sidecarFor(
	model, id string, act func(*sidecar, jetstream.Msg, *work.Item, []string) bool,
) *sidecar {
	g.t.Helper()
	s := &sidecar{t: g.t, id: id, model: model, conn: g.server.Connect(bus.SidecarInboxes), act: act,
		ran: map[string]int{}}
	var err error
	if s.js, err = jetstream.New(s.conn); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.conn.Subscribe(bus.CancelPrefix+">", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancels = append(s.cancels, m.Subject+" "+string(m.Data))
	}); err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	s.all.Go(s.pull)
	stop := sync.OnceFunc(func() { cancel(); s.all.Wait(); s.conn.Close() })
	g.t.Cleanup(stop)
	return s
}

// pull takes slices, one after another, until the test ends.
func (s *sidecar) pull() {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
		c, err := s.js.Consumer(ctx, bus.StreamName(lane.Pool), bus.ConsumerName(lane.WorkSubject(s.model)))
		cancel()
		if err != nil {
			select {
			case <-s.ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		got, err := c.Fetch(8, jetstream.FetchMaxWait(200*time.Millisecond),
			jetstream.FetchPriorityGroup(bus.PriorityGroup))
		if err != nil {
			continue
		}
		for m := range got.Messages() {
			s.run(m)
		}
	}
}

// read returns a slice and its texts.
func (s *sidecar) read(m jetstream.Msg) (*work.Item, []string) {
	var item work.Item
	if _, err := item.UnmarshalMsg(m.Data()); err != nil {
		s.t.Errorf("a work item: %v", err)
		return nil, nil
	}
	if item.ModelID == modelID && item.ModelDocumentHash != documentHash {
		s.t.Errorf("%s is of the document %q", item.WorkItemID, item.ModelDocumentHash)
	}
	texts := make([]string, len(item.Items))
	for i, raw := range item.Items {
		it, err := api.ReadItem(raw, i, api.Limits{})
		if err != nil {
			s.t.Errorf("item %d: %v", i, err)
		}
		texts[i] = strings.Clone(it.Text)
	}
	return &item, texts
}

func (s *sidecar) run(m jetstream.Msg) {
	item, texts := s.read(m)
	if item == nil {
		return
	}
	if s.act != nil && s.act(s, m, item, texts) {
		return
	}
	s.mark(item, work.Taken, false)
	s.finish(m, item, s.answer(item, texts))
}

// mark publishes where a slice is. A server's end is told as a request.
func (s *sidecar) mark(item *work.Item, state string, alone bool) {
	data, err := (&work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
		WorkerID: s.id, State: state, Attempt: item.Attempt, Alone: alone}).MarshalMsg(nil)
	if err == nil {
		err = s.conn.Publish(item.ReplySubject, data)
	}
	if err != nil && s.ctx.Err() == nil {
		s.t.Logf("mark: %v", err)
	}
}

// answer runs a slice.
func (s *sidecar) answer(item *work.Item, texts []string) *work.Result {
	s.mu.Lock()
	s.ran[item.WorkItemID]++
	s.mu.Unlock()
	res := &work.Result{WorkItemID: item.WorkItemID, RequestID: item.RequestID, Index: item.Index,
		Attempt: item.Attempt, Success: true, WorkerID: s.id, ModelID: item.ModelID, Revision: "r1",
		ProcessingMS: 2, InferenceMS: 1, Units: &work.Units{}}
	for i, text := range texts {
		if strings.HasPrefix(text, "!error") {
			e := errs.Invalidf("items", "Field 'items[%d]': %s", int(item.FirstIndex)+i, text)
			res.Success, res.Results, res.Err = false, nil, e.AppendMsgpack(nil)
			return res
		}
		d := api.EncodeItem{Dense: &api.Dense{Dims: 4, Values: api.Vector(api.Float32, vector(text))}}
		res.Results = append(res.Results, api.AppendEncodeResult(nil, &d))
		res.Units.InputTokens += uint64(len(text))
	}
	return res
}

// finish sends a result until it is receipted, and acknowledges the slice.
func (s *sidecar) finish(m jetstream.Msg, item *work.Item, res *work.Result) {
	data, err := res.MarshalMsg(nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	for s.ctx.Err() == nil {
		if state := s.ask(item.ReplySubject, data); state != "" {
			if err := m.Ack(); err != nil && s.ctx.Err() == nil {
				s.t.Logf("ack: %v", err)
			}
			return
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask sends a result and returns the state of its receipt, "" for none.
func (s *sidecar) ask(subject string, data []byte) string {
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	m, err := s.conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return ""
	}
	var r work.Receipt
	if _, err := r.UnmarshalMsg(m.Data); err != nil {
		s.t.Errorf("a receipt: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receipts = append(s.receipts, r.State)
	return r.State
}

func caller(version string) dialect.Caller { return dialect.ParseCaller(version) }
