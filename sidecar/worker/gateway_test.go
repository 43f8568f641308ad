package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/health"
)

var lane = bus.Lane{Pool: "p", Profile: "cpu", Bundle: "default"}

// patience bounds every wait for an event of a test.
const patience = 2 * time.Minute

// gateway publishes slices and receipts what comes for them, as the real one does.
type fakeGateway struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	router string
	inbox  *nats.Subscription

	mu      sync.Mutex
	results map[string][]work.Result // by work item id
	marks   map[string][]work.Mark
	mute    bool   // answers nothing
	muted   int    // results that came meanwhile
	state   string // of the receipt of every result; "": as it should be
	chunks  map[string]map[uint32]work.Chunk
	forget  int                  // chunks that are lost
	deaths  map[string]int       // while alone, by work item id
	dead    []string             // dead letters
	items   map[string]work.Item // what was published, by work item id
	again   func(it work.Item)   // publishes a slice's next attempt; nil: nobody does
	changed chan struct{}
}

func newGateway(t *testing.T, s *bustest.Server, router string) *fakeGateway {
	t.Helper()
	g := &fakeGateway{
		t: t, nc: s.Connect(bus.GatewayInboxes), router: router, results: map[string][]work.Result{},
		marks: map[string][]work.Mark{}, chunks: map[string]map[uint32]work.Chunk{},
		changed: make(chan struct{}, 1), deaths: map[string]int{}, items: map[string]work.Item{},
	}
	var err error
	if g.js, err = jetstream.New(g.nc); err != nil {
		t.Fatal(err)
	}
	g.listen()
	g.beat(t)
	return g
}

// listen subscribes the inbox.
func (g *fakeGateway) listen() {
	g.t.Helper()
	var err error
	if g.inbox, err = g.nc.Subscribe(bus.Inbox(g.router, "*"), g.heard); err == nil {
		err = g.nc.Flush()
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// beat publishes heartbeats until the test ends: sidecars drop the work of a gateway that is silent
// for work.GatewaySilence, which is less than the time after which lost work is delivered again.
func (g *fakeGateway) beat(t *testing.T) {
	data, err := json.Marshal(bus.GatewayHeartbeat{RouterID: g.router})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		tick := time.NewTicker(work.GatewayHeartbeat)
		defer tick.Stop()
		for {
			_ = g.nc.Publish(bus.GatewayPrefix+g.router, data) // the next one follows
			select {
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
		}
	}()
}

func (g *fakeGateway) heard(m *nats.Msg) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() {
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}()
	receipt := func(r work.Receipt) {
		data, _ := r.MarshalMsg(nil)
		if m.Reply != "" && !g.mute {
			_ = m.Respond(data)
		}
	}
	data := m.Data
	kind, _, _ := msgp.ReadStringBytes(msgp.Locate("kind", data))
	switch kind {
	case work.KindMark:
		var mark work.Mark
		if _, err := mark.UnmarshalMsg(data); err != nil {
			g.t.Error(err)
		}
		g.marks[mark.WorkItemID] = append(g.marks[mark.WorkItemID], mark)
		if mark.State == work.ServerDied && g.again != nil {
			g.died(&mark)
		}
		receipt(work.Receipt{State: work.Stored})
		return
	case work.KindChunk:
		var c work.Chunk
		if _, err := c.UnmarshalMsg(data); err != nil {
			g.t.Error(err)
		}
		if g.forget > 0 {
			g.forget--
			return
		}
		if len(g.results[c.WorkItemID]) > 0 {
			if m.Reply != "" {
				g.duplicate(c.WorkItemID, receipt)
			}
			return
		}
		if g.chunks[c.WorkItemID] == nil {
			g.chunks[c.WorkItemID] = map[uint32]work.Chunk{}
		}
		g.chunks[c.WorkItemID][c.Index] = c
		if m.Reply == "" {
			return
		}
		if g.mute {
			break
		}
		data = make([]byte, 0, c.TotalBytes)
		var missing []uint32
		for i := range c.Count {
			part, ok := g.chunks[c.WorkItemID][i]
			if !ok {
				missing = append(missing, i)
			}
			data = append(data, part.Payload...)
		}
		if len(missing) > 0 {
			receipt(work.Receipt{State: work.Again, Missing: missing})
			return
		}
		delete(g.chunks, c.WorkItemID)
	}
	if g.mute {
		g.muted++
		return
	}
	var r work.Result
	if _, err := r.UnmarshalMsg(data); err != nil {
		g.t.Error(err)
	}
	if len(g.results[r.WorkItemID]) > 0 {
		g.duplicate(r.WorkItemID, receipt)
		return
	}
	g.results[r.WorkItemID] = append(g.results[r.WorkItemID], r)
	receipt(work.Receipt{State: cmp.Or(g.state, work.Stored)})
}

// duplicate counts a result that came before, and keeps nothing of it. The gateway's lock is held.
func (g *fakeGateway) duplicate(id string, receipt func(work.Receipt)) {
	g.results[id] = append(g.results[id], work.Result{WorkItemID: id})
	receipt(work.Receipt{State: cmp.Or(g.state, work.Duplicate)})
}

// died counts a death as a gateway does: the next attempt runs alone, the second death while alone
// is a dead letter. The gateway's lock is held.
func (g *fakeGateway) died(m *work.Mark) {
	it := g.items[m.WorkItemID]
	if m.Attempt != it.Attempt {
		return
	}
	if m.Alone {
		g.deaths[m.WorkItemID]++
	}
	if g.deaths[m.WorkItemID] >= 2 {
		g.dead = append(g.dead, m.WorkItemID)
		return
	}
	it.Attempt++
	it.Alone, it.DiedOn = true, append(it.DiedOn, m.WorkerID)
	g.items[m.WorkItemID] = it
	go g.again(it)
}

// republish has the gateway publish what a server died with again.
func (g *fakeGateway) republish() {
	g.again = func(it work.Item) {
		m := nats.NewMsg(lane.WorkSubject(it.ModelID))
		m.Data, _ = it.MarshalMsg(nil)
		if _, err := g.js.PublishMsg(context.Background(), m); err != nil {
			g.t.Error(err)
		}
	}
}

// publish publishes a slice of texts.
func (g *fakeGateway) publish(model, request string, change func(*work.Item, *nats.Msg), texts ...string) {
	g.t.Helper()
	it := work.Item{
		WorkItemID: request + ".0", RequestID: request, Total: 1, Operation: work.Encode, ModelID: model,
		RouterID: g.router, ReplySubject: bus.Inbox(g.router, request),
		Timestamp: float64(time.Now().UnixMicro()) / 1e6,
		Deadline:  float64(time.Now().Add(5*time.Minute).UnixMicro()) / 1e6, AcceptsChunks: true,
	}
	for _, text := range texts {
		it.Items = append(it.Items, msgp.AppendString(nil, text))
	}
	m := nats.NewMsg(lane.WorkSubject(model))
	if change != nil {
		change(&it, m)
	}
	g.lock(func() { g.items[it.WorkItemID] = it })
	m.Header.Set(bus.HeaderTTL, "300s")
	m.Header.Set(bus.HeaderMsgID, fmt.Sprintf("%s#%d", it.WorkItemID, it.Attempt))
	if m.Data == nil {
		var err error
		if m.Data, err = it.MarshalMsg(nil); err != nil {
			g.t.Fatal(err)
		}
	}
	var err error
	for range 6 { // an outcome that is not known is tried again, as gateways do
		ctx, cancel := context.WithTimeout(g.t.Context(), patience/6)
		_, err = g.js.PublishMsg(ctx, m)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
			break
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// prepare makes stream and consumer and announces the demand.
func (g *fakeGateway) prepare(models ...string) {
	g.t.Helper()
	streams := bus.Streams{}
	g.ask(func(ctx context.Context) error {
		_, err := g.js.CreateOrUpdateStream(ctx, streams.Work(lane.Pool))
		return err
	})
	for _, m := range models {
		c := streams.Consumer(lane.WorkSubject(m))
		g.ask(func(ctx context.Context) error {
			_, err := g.js.CreateOrUpdateConsumer(ctx, bus.StreamName(lane.Pool), c)
			return err
		})
		if err := g.nc.Publish(lane.DemandSubject(m), nil); err != nil {
			g.t.Fatal(err)
		}
	}
}

// ask asks the broker's API, and again after 5 s without an answer, as components do: on a busy
// machine a connection may be given up as dead, and the answer is lost with it.
func (g *fakeGateway) ask(f func(ctx context.Context) error) {
	g.t.Helper()
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) {
			g.t.Fatal(err)
		}
	}
}

// await waits until ok holds of what the gateway has heard.
func (g *fakeGateway) await(what string, ok func() bool) {
	g.t.Helper()
	deadline := time.After(patience)
	for {
		g.mu.Lock()
		done := ok()
		g.mu.Unlock()
		if done {
			return
		}
		select {
		case <-g.changed:
		case <-deadline:
			g.t.Fatalf("in %v there was no %s", patience, what)
		}
	}
}

// result waits for the first result of a request.
func (g *fakeGateway) result(request string) (r work.Result) {
	g.t.Helper()
	g.await("result of "+request, func() bool {
		of := g.results[request+".0"]
		if len(of) > 0 {
			r = of[0]
		}
		return len(of) > 0
	})
	return r
}

// left returns the messages of the pool's stream, once ok holds of it.
func (g *fakeGateway) settled(ok func(jetstream.StreamState) bool) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s, err := g.js.Stream(g.t.Context(), bus.StreamName(lane.Pool))
		if err != nil {
			g.t.Fatal(err)
		}
		if ok(s.CachedInfo().State) {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the stream is %+v", s.CachedInfo().State)
		}
	}
}

func empty0(s jetstream.StreamState) bool { return s.Msgs == 0 }

// sidecar is a worker that runs.
type sidecar struct {
	stop  context.CancelFunc
	ended chan error
	state *health.State
	w     *Worker
}

func startSidecar(
	t *testing.T, s *bustest.Server, f *fakeServer, id string, change ...func(*Config),
) *sidecar {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("worker", id)
	}
	state := &health.State{}
	config := Config{
		Lane: lane, ID: id, NATS: bus.Options{URL: s.URL}, Socket: f.path, DrainTimeout: patience,
		Stall: patience, Log: log, Metrics: health.NewMetrics(prometheus.NewRegistry()), State: state,
	}
	for _, f := range change {
		f(&config)
	}
	w, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out := &sidecar{stop: stop, ended: make(chan error, 1), state: state, w: w}
	go func() { out.ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		f.letGo()
		select {
		case <-out.ended:
		case <-time.After(2 * patience):
			t.Error("the sidecar does not end")
		}
	})
	return out
}

// letGo releases what is held, for good.
func (f *fakeServer) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.release:
	default:
		close(f.release)
	}
}

func texts(r work.Result) string {
	var out []string
	for _, raw := range r.Results {
		s, _, _ := msgp.ReadStringBytes(raw)
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

// heartbeats collects the heartbeats of workers.
func heartbeats(t *testing.T, g *fakeGateway) chan bus.WorkerHeartbeat {
	t.Helper()
	ch := make(chan bus.WorkerHeartbeat, 1000)
	if _, err := g.nc.Subscribe(bus.HealthPrefix+">", func(m *nats.Msg) {
		var h bus.WorkerHeartbeat
		if err := json.Unmarshal(m.Data, &h); err != nil {
			t.Error(err)
		}
		select {
		case ch <- h:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := g.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return ch
}

func (g *fakeGateway) lock(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}
