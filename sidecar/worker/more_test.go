package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// Payloads come from the store. One that is missing, or is not what was stored, is answered with an
// error.
func TestPayloads(t *testing.T) {
	store, err := payload.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1", func(c *Config) { c.Store = store })
	g.prepare("org/m")
	raw, err := (&work.Payload{Items: []msgp.Raw{msgp.AppendString(nil, "stored")}}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), "key", raw); err != nil {
		t.Fatal(err)
	}
	for request, c := range map[string]struct{ key, sum, want string }{
		"good":    {"key", string(payload.Sum(raw)), "STORED"},
		"missing": {"none", string(payload.Sum(raw)), ""},
		"changed": {"key", "other", ""}, "path": {"../key", string(payload.Sum(raw)), ""},
	} {
		g.publish("org/m", request, func(it *work.Item, _ *nats.Msg) {
			it.PayloadRef, it.PayloadSHA256 = c.key, []byte(c.sum)
		})
		r := g.result(request)
		if r.Success != (c.want != "") || texts(r) != c.want || r.Success == (len(r.Err) > 0) {
			t.Errorf("%s: %+v", request, r)
		}
	}
	g.settled(empty0)
}

// full is a store that takes nothing.
type full struct{ payload.Store }

func (full) Put(context.Context, string, []byte) error { return errors.New("no space left on device") }

// A result above what is sent in chunks is stored, and what is sent names it. It stays for the
// gateway that says that it took it, and is deleted when nobody wants it. When the store fails, or
// the gateway has none, the error says so.
func TestHugeResults(t *testing.T) {
	dir := t.TempDir()
	store, err := payload.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	left := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	for name, c := range map[string]struct {
		store  Store
		state  string // of the receipt
		refuse bool   // the gateway takes no stored results
		says   string
	}{
		"stored":     {store: store, state: work.Stored},
		"duplicate":  {store: store, state: work.Duplicate},
		"unknown":    {store: store, state: work.Unknown},
		"no gateway": {store: store, refuse: true, state: work.Stored, says: "SIE_PAYLOAD_STORE_URL"},
		"full":       {store: full{store}, state: work.Stored, says: "did not take"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := bustest.Start(t, nil), startFake(t)
			g := newGateway(t, s, "gw")
			startSidecar(t, s, f, "w1", func(o *Config) { o.Store, o.transfer = c.store, hugeBytes })
			g.prepare("org/m")
			g.lock(func() { g.state = c.state })
			g.publish("org/m", "r1", func(it *work.Item, _ *nats.Msg) { it.AcceptsRef = !c.refuse }, "!huge")
			r := g.result("r1")
			g.settled(empty0)
			if c.says != "" {
				e, err := errs.FromMsgpack(r.Err)
				if r.Success || err != nil || !strings.Contains(e.Message, c.says) {
					t.Errorf("%v, %v", e, err)
				}
				return
			}
			if !r.Success || len(r.Results) > 0 || r.WorkItemID != "r1.0" || r.WorkerID != "w1" {
				t.Errorf("%+v", r)
			}
			if c.state != work.Stored {
				testrig.Until(t, "the result is still stored", func() bool { return left() == 0 })
				return
			}
			data, err := store.Get(t.Context(), r.ResultRef, int64(r.ResultBytes))
			if err == nil {
				err = payload.Verify(data, r.ResultSHA256)
			}
			var whole work.Result
			if err == nil {
				_, err = whole.UnmarshalMsg(data)
			}
			if err != nil || len(texts(whole)) != hugeBytes ||
				r.ResultBytes != uint64(len(data)) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if err := store.Delete(t.Context(), r.ResultRef); err != nil {
				t.Error(err)
			}
		})
		if left() != 0 {
			t.Errorf("%s: %d files are left", name, left())
		}
	}
}

// Work that no gateway of ours sends is dropped, given back or answered with an error, and the work
// after it is answered.
func TestStrangeWork(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	for i, change := range []func(*work.Item, *nats.Msg){
		func(_ *work.Item, m *nats.Msg) { m.Header.Set("Nats-Other", "x") },
		func(it *work.Item, _ *nats.Msg) { it.ReplySubject = "$JS.API.STREAM.DELETE.WORK_POOL_p" },
		func(it *work.Item, _ *nats.Msg) { it.ReplySubject = "_INBOX.gw.a.b" },
		func(it *work.Item, _ *nats.Msg) { it.ReplySubject = "_INBOX.*.>" },
		func(it *work.Item, _ *nats.Msg) { it.WorkItemID = "" },
		func(it *work.Item, _ *nats.Msg) { it.RequestID = strings.Repeat("r", 300) },
		func(it *work.Item, _ *nats.Msg) { it.Deadline = float64(time.Now().Unix() - 60) },
	} {
		g.publish("org/m", fmt.Sprintf("dropped%d", i), change, "x")
	}
	for request, change := range map[string]func(*work.Item, *nats.Msg){
		"operation": func(it *work.Item, _ *nats.Msg) { it.Operation = "generate" },
		"model":     func(it *work.Item, _ *nats.Msg) { it.ModelID = "org/other" },
		"items":     func(it *work.Item, _ *nats.Msg) { it.Items = make([]msgp.Raw, work.MaxItems+1) },
	} {
		g.publish("org/m", request, func(it *work.Item, m *nats.Msg) {
			change(it, m)
			for i := range it.Items {
				it.Items[i] = msgp.AppendNil(nil)
			}
		}, "x")
		if r := g.result(request); r.Success || r.ErrorCode != "INVALID_INPUT" || len(r.Err) == 0 {
			t.Errorf("%s: %+v", request, r)
		}
	}
	g.settled(empty0)
	for i, data := range [][]byte{
		{}, {0xc1}, []byte("{}"), {0x81, 0xa5}, {0xdf, 0xff, 0xff, 0xff, 0xff},
		append([]byte{0x81, 0xa5, 'i', 't', 'e', 'm', 's'}, deep(1_000_000)...),
	} {
		g.publish("org/m", fmt.Sprintf("unread%d", i), func(_ *work.Item, m *nats.Msg) {
			m.Data = append([]byte{}, data...)
		})
	}
	g.publish("org/m", "after", nil, "fine")
	if r := g.result("after"); texts(r) != "FINE" {
		t.Errorf("%+v", r)
	}
	g.lock(func() {
		for id := range g.results {
			if strings.HasPrefix(id, "dropped") {
				t.Errorf("%s has a result", id)
			}
		}
	})
	// what cannot be read waits for a worker that can, until the broker removes it
	g.settled(func(s jetstream.StreamState) bool { return s.Msgs == 6 })
}

func deep(n int) []byte { return []byte(strings.Repeat("\x91", n)) }

// A request that is cancelled is not run, nor answered, from the slice on that was named.
func TestCancellation(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	f.tokens.Store(1) // one slice at a time
	g := newGateway(t, s, "gw")
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	g.publish("org/m", "held", nil, "!hold"+strings.Repeat(" all the credit", 10))
	<-f.running
	for i := range 4 {
		g.publish("org/m", "many", func(it *work.Item, _ *nats.Msg) {
			it.Index, it.WorkItemID = uint32(i), fmt.Sprintf("many.%d", i)
		}, "x")
	}
	body, err := (&work.Cancel{From: 2}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"many", "early"} {
		if err := g.nc.Publish(bus.CancelSubject("gw", request), body); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.nc.Publish(bus.CancelSubject("gw", "held"), nil); err != nil {
		t.Fatal(err)
	}
	// the running slice leaves the stream at once, its place in the server when it ends
	g.settled(func(s jetstream.StreamState) bool { return s.Msgs <= 2 })
	for i := range 4 { // after its cancellation
		g.publish("org/m", "early", func(it *work.Item, _ *nats.Msg) {
			it.Index, it.WorkItemID = uint32(i), fmt.Sprintf("early.%d", i)
		}, "x")
	}
	f.letGo()
	g.settled(empty0)
	g.lock(func() {
		for id, want := range map[string]int{
			"many.0": 1, "many.1": 1, "many.2": 0, "many.3": 0, "held.0": 0,
			"early.0": 1, "early.1": 1, "early.2": 0, "early.3": 0,
		} {
			// An answer comes twice where its receipt takes longer than work.ReceiptRetry.
			if n := min(len(g.results[id]), 1); n != want {
				t.Errorf("%s has %d results, want %d", id, len(g.results[id]), want)
			}
		}
	})
}

// Of two workers one loads the model; the other joins when the backlog is four windows, and takes
// the model over when the first leaves.
func TestTwoWorkers(t *testing.T) {
	s, f1, f2 := bustest.Start(t, nil), startFake(t), startFake(t)
	f1.tokens.Store(1)
	f2.tokens.Store(1)
	g := newGateway(t, s, "gw")
	beats := heartbeats(t, g)
	workers := map[string]*sidecar{"w1": startSidecar(t, s, f1, "w1"), "w2": startSidecar(t, s, f2, "w2")}
	fakes := map[string]*fakeServer{"w1": f1, "w2": f2}
	ready := map[string]bool{}
	for h := range beats {
		if ready[h.Name] = h.Ready; ready["w1"] && ready["w2"] {
			break
		}
	}
	g.prepare("org/m")
	g.publish("org/m", "first", nil, "a")
	first := g.result("first").WorkerID
	other := map[string]string{"w1": "w2", "w2": "w1"}[first]
	if models := fakes[other].models(); len(models) > 0 {
		t.Errorf("%s loaded the model too", other)
	}
	const n = 60
	for i := range n {
		g.publish("org/m", fmt.Sprintf("r%d", i), nil, "!hold")
	}
	<-fakes[other].running // it joined
	fakes["w1"].letGo()
	fakes["w2"].letGo()
	by := map[string]int{}
	for i := range n {
		by[g.result(fmt.Sprintf("r%d", i)).WorkerID]++
	}
	if by[first] == 0 || by[other] == 0 {
		t.Errorf("the backlog went to %v", by)
	}
	workers[first].stop()
	<-workers[first].ended
	workers[first].ended <- nil
	g.publish("org/m", "last", nil, "z")
	if r := g.result("last"); r.WorkerID != other {
		t.Errorf("%+v", r)
	}
	g.settled(empty0)
}

func (f *fakeServer) models() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loaded
}

// A consumer of another layout, which nobody uses, makes room, whether the sidecar finds it when it
// lists the consumers of its lane or when it makes one itself. Its filter is no queue to follow: a
// consumer that is made for such a queue would keep those of all models out.
func TestLeftoversAreRemoved(t *testing.T) {
	const all = "sie.work.p.cpu.default.*"
	for name, c := range map[string]struct {
		durable string
		listed  bool // it is there before the sidecar lists
	}{
		"listed":                   {"p_cpu_default", true},
		"met":                      {"p_cpu_default", false},
		"listed, named by filter":  {bus.ConsumerName(all), true},
		"met, named by its filter": {bus.ConsumerName(all), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := bustest.Start(t, nil), startFake(t)
			g := newGateway(t, s, "gw")
			if !c.listed {
				beats := heartbeats(t, g)
				startSidecar(t, s, f, "w1")
				for h := range beats {
					if h.Ready {
						break
					}
				}
			}
			g.prepare()
			if _, err := g.js.CreateConsumer(t.Context(), bus.StreamName(lane.Pool), jetstream.ConsumerConfig{
				Durable: c.durable, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: all,
			}); err != nil {
				t.Fatal(err)
			}
			g.publish("org/m", "r1", nil, "a")
			if c.listed {
				startSidecar(t, s, f, "w1")
			}
			told := make(chan struct{})
			defer close(told)
			go g.demand(told, lane.DemandSubject("org/m"))
			if r := g.result("r1"); texts(r) != "A" {
				t.Errorf("%+v", r)
			}
			g.settled(empty0)
			if loaded := f.models(); !slices.Equal(loaded, []string{"org/m"}) {
				t.Errorf("loaded %q", loaded)
			}
		})
	}
}

// demand announces work again and again, as a gateway's heartbeats do: the sidecar may not listen
// yet.
func (g *fakeGateway) demand(told <-chan struct{}, subject string) {
	for {
		if err := g.nc.Publish(subject, nil); err != nil {
			g.t.Error(err)
		}
		select {
		case <-told:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestFiltersMeet(t *testing.T) {
	for _, c := range []struct {
		filter string
		meets  bool
	}{
		{"", true}, {">", true}, {"a.>", true}, {"a.b.c", true}, {"a.*.c", true}, {"a.b", false},
		{"a.b.d", false},
		{"a.b.c.d", false}, {"a.b.c.>", false}, {"*.*.*", true}, {"b.>", false},
	} {
		if got := meets(c.filter, "a.b.c"); got != c.meets {
			t.Errorf("%q: %v", c.filter, got)
		}
	}
}

// The server is killed three times in a row under load: everybody is answered, nobody is a dead
// letter. A slice that kills every server is one after three of them, and the others are answered.
func TestRestartsAndPoison(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	f.tokens.Store(100)
	g := newGateway(t, s, "gw")
	g.republish()
	startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	const n = 300
	for i := range n {
		if i == 100 {
			g.publish("org/m", "poison", nil, "!crash")
		}
		g.publish("org/m", fmt.Sprintf("r%d", i), nil, fmt.Sprintf("text %d", i))
		if i%100 == 50 { // under way
			<-f.running
			f.kill()
			f.start()
		}
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // starts the server that the poison ended
		for {
			select {
			case <-stop:
				return
			case <-f.running:
			case <-time.After(20 * time.Millisecond):
			}
			f.mu.Lock()
			down := f.down
			f.mu.Unlock()
			if down {
				f.start()
			}
		}
	}()
	for i := range n {
		if r := g.result(fmt.Sprintf("r%d", i)); texts(r) != fmt.Sprintf("TEXT %d", i) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	g.await("dead letter", func() bool { return len(g.dead) > 0 })
	g.settled(empty0)
	g.lock(func() {
		if len(g.dead) != 1 || g.dead[0] != "poison.0" {
			t.Errorf("dead letters: %v", g.dead)
		}
		if n := len(g.results["poison.0"]); n != 0 {
			t.Errorf("the poison has %d results", n)
		}
	})
	// Where the test killed the server while the poison was in it, that was one of its three.
	if n := f.crashes.Load(); n < 2 || n > 3 {
		t.Errorf("the poison ended %d servers", n)
	}
}

// A short loss of the connection to the broker loses nothing and runs nothing twice.
func TestConnectionIsLost(t *testing.T) {
	s, f := bustest.Start(t, nil), startFake(t)
	g := newGateway(t, s, "gw")
	w := startSidecar(t, s, f, "w1")
	g.prepare("org/m")
	const n = 200
	for i := range n {
		g.publish("org/m", fmt.Sprintf("r%d", i), nil, "x")
		if i%50 == 25 {
			if err := w.w.nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		g.result(fmt.Sprintf("r%d", i))
	}
	g.settled(empty0)
	for i := range n {
		if runs := f.runs(fmt.Sprintf("r%d.0", i)); runs != 1 {
			t.Errorf("r%d ran %d times", i, runs)
		}
	}
}
