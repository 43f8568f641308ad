package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// pending is a request that runs.
type pending struct {
	texts []string
	res   *api.EncodeResponse
	err   error
	done  chan struct{}
}

func (g *rig) start(ctx context.Context, texts ...string) *pending {
	p := &pending{texts: texts, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.res, p.err = g.encodeAs(ctx, inference.Head{}, texts...)
	}()
	return p
}

// answered waits for the request and checks its answer.
func (p *pending) answered(t *testing.T) {
	t.Helper()
	<-p.done
	check(t, p.res, p.err, p.texts...)
}

// states counts the pending slices by state.
func (g *rig) states() (n [done + 1]int) {
	g.queue.mu.Lock()
	var list []*request
	for _, r := range g.queue.requests {
		list = append(list, r)
	}
	g.queue.mu.Unlock()
	for _, r := range list {
		r.mu.Lock()
		for i := range r.slices {
			n[r.slices[i].state]++
		}
		r.mu.Unlock()
	}
	return n
}

// waits waits until n slices are in a state.
func (g *rig) waits(s state, n int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("not %d slices in state %d", n, s), func() bool { return g.states()[s] == n })
}

// The broker is killed with everything in it and comes back empty: what waited is answered, and so
// is what came while it was away.
func TestTheBrokerIsKilled(t *testing.T) {
	g := newRig(t, nil)
	before := g.start(t.Context(), texts("before", 40)...)
	g.waits(stored, 2)
	g.server.Stop()
	eventually(t, "the gateway does not notice", func() bool { return !g.queue.connected.Load() })
	during := g.start(t.Context(), "during")
	g.waits(queued, 1)
	g.server.Restart()
	g.sidecar("w1", nil)
	before.answered(t)
	during.answered(t)
	res, err := g.encode("after")
	check(t, res, err, "after")
}

func texts(name string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(name, " ", i)
	}
	return out
}

// A stream or a consumer that is deleted under waiting work is made again, and the work is done.
func TestStreamOrConsumerIsDeleted(t *testing.T) {
	for name, remove := range map[string]func(ctx context.Context, js jetstream.JetStream) error{
		"stream": func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteStream(ctx, bus.StreamName(lane.Pool))
		},
		"consumer": func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteConsumer(ctx, bus.StreamName(lane.Pool),
				bus.ConsumerName(lane.WorkSubject(modelID)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, nil)
			js, err := jetstream.New(g.conn)
			if err != nil {
				t.Fatal(err)
			}
			p := g.start(t.Context(), texts("text", 100)...)
			g.waits(stored, 4)
			if err := remove(t.Context(), js); err != nil {
				t.Fatal(err)
			}
			g.sidecar("w1", nil)
			p.answered(t)
			res, err := g.encode("after")
			check(t, res, err, "after")
		})
	}
}

// A consumer of another layout that gets a model's messages is removed, once nobody uses it; one
// that gets other messages stays.
func TestLeftoversOfAnotherLayoutAreRemoved(t *testing.T) {
	g := newRig(t, nil)
	js, err := jetstream.New(g.conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s, err := js.CreateStream(ctx, bus.Streams{}.Work(lane.Pool))
	if err != nil {
		t.Fatal(err)
	}
	consumer := func(name, filter string) jetstream.Consumer {
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old, other := consumer("lane", lane.WorkSubject("x")[:len(lane.WorkSubject("x"))-1]+">"),
		consumer("other", "sie.work.default.gpu.default.>")
	if _, err := js.Publish(ctx, lane.WorkSubject("org/other"), []byte("work")); err != nil {
		t.Fatal(err)
	}
	m, err := old.Next()
	if err != nil {
		t.Fatal(err)
	}
	g.sidecar("w1", nil)
	p := g.start(ctx, "text")
	eventually(t, "the queue of the model was not tried", func() bool {
		l := g.queue.peek(lane.WorkSubject(modelID))
		if l == nil {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.failures > 1
	})
	if _, err := old.Info(ctx); err != nil {
		t.Errorf("a consumer that is in use: %v", err)
	}
	if err := m.Ack(); err != nil {
		t.Fatal(err)
	}
	p.answered(t)
	if _, err := old.Info(ctx); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the idle one: %v", err)
	}
	if _, err := other.Info(ctx); err != nil {
		t.Errorf("that of other work: %v", err)
	}
}

// Work that somebody acknowledged without running it is published again.
func TestDroppedWorkIsPublishedAgain(t *testing.T) {
	g := newRig(t, nil)
	var once sync.Once
	g.sidecar("w1", func(s *sidecar, m jetstream.Msg, _ *work.Item, _ []string) (dropped bool) {
		once.Do(func() {
			dropped = true
			if err := m.Ack(); err != nil {
				t.Error(err)
			}
		})
		return dropped
	})
	res, err := g.encode("text")
	check(t, res, err, "text")
}

// A full queue refuses new requests with Retry-After and the code that the caller retries. Another
// model's queue is not touched. What is published again waits for room.
func TestAFullQueueRefuses(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Streams.MaxWaiting = 2 })
	held := g.start(t.Context(), texts("held", 64)...)
	g.waits(stored, 2)
	for version, code := range map[string]errs.Code{
		"": errs.QueueFull, "0.10.1": errs.QueueFull, "0.6.30": errs.Provisioning,
	} {
		_, err := g.encodeAs(t.Context(), inference.Head{Caller: caller(version)}, "refused")
		if e := errs.As(err); e == nil || e.Code != code || e.Status != 503 || e.RetryAfter < time.Second {
			t.Errorf("%q: %v, want %s", version, err, code)
		}
	}
	if r := g.backend.Begin(inference.Head{}).Refusal(modelID); r == nil || r.Err.Code != errs.QueueFull {
		t.Errorf("before the body: %+v", r)
	}
	g.sidecarFor("org/other", "w1", nil)
	res, err := g.encodeWith(t.Context(), inference.Head{}, "org/other", "text")
	if err != nil || string(res.Items[0].Dense.Values.Data) != string(vector("text")) {
		t.Errorf("another model: %v", err)
	}
	g.queue.mu.Lock()
	var r *request
	for _, r = range g.queue.requests {
	}
	g.queue.mu.Unlock()
	r.mu.Lock() // as if one of its slices had been lost; the stream has no room for it now
	r.requeueLocked(&r.slices[0], true, 0, time.Now())
	r.mu.Unlock()
	g.queue.wakeKeeper()
	eventually(t, "the slice is not refused by the stream", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.slices[0].tries > 1
	})
	g.sidecar("w1", nil)
	held.answered(t)
	eventually(t, "the queue stays full", func() bool {
		res, err = g.encode("after")
		return err == nil
	})
	check(t, res, nil, "after")
}

// A client that leaves cancels its slices.
func TestAClientLeaves(t *testing.T) {
	g := newRig(t, nil)
	s := g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, _ []string) bool {
		s.mark(item, work.Taken, false)
		return true // and never answers
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	p := g.start(ctx, "text")
	g.waits(taken, 1)
	cancel(admit.ErrClientGone)
	<-p.done
	if !errors.Is(p.err, admit.ErrClientGone) {
		t.Errorf("%v", p.err)
	}
	eventually(t, "the slices are not cancelled", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.cancels) == 1 && strings.HasPrefix(s.cancels[0], bus.CancelPrefix+"gw-1.")
	})
}

// Work of a client that left while the broker was away is cancelled once a worker says that it has
// it: the cancellation at that time reached nobody.
func TestAClientLeavesWhileTheBrokerIsAway(t *testing.T) {
	g := newRig(t, nil)
	var mu sync.Mutex
	var has *work.Item
	s := g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, _ []string) bool {
		s.mark(item, work.Taken, false)
		mu.Lock()
		defer mu.Unlock()
		has = item
		return true // and never answers
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	p := g.start(ctx, "text")
	g.waits(taken, 1)
	g.server.Stop()
	eventually(t, "the gateway does not notice", func() bool { return !g.queue.connected.Load() })
	cancel(admit.ErrClientGone)
	<-p.done
	g.server.Restart()
	mu.Lock()
	defer mu.Unlock()
	eventually(t, "the worker is never told", func() bool {
		s.mark(has, work.Running, false)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.cancels) > 0 && s.cancels[0] == bus.CancelSubject("gw-1", has.RequestID)+" "
	})
}

// What a timeout says: no worker took it, a worker took it, or the broker is away.
func TestTimeoutsSayWhatHappened(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	_, err := g.encode("text")
	if e := errs.As(err); e == nil || e.Status != 503 || e.Code != errs.QueueFull || e.RetryAfter == 0 ||
		!strings.Contains(e.Message, "still waited in the queue") {
		t.Errorf("untaken: %v", err)
	}
	g.sidecar("w7", func(s *sidecar, m jetstream.Msg, item *work.Item, _ []string) bool {
		s.mark(item, work.Taken, false)
		return true
	})
	eventually(t, "the worker does not take", func() bool {
		_, err = g.encode("text")
		e := errs.As(err)
		return e != nil && e.Status == 504 && strings.Contains(e.Message, "'w7'")
	})
	g.server.Stop()
	eventually(t, "the gateway does not notice", func() bool { return !g.queue.connected.Load() })
	_, err = g.encodeAs(t.Context(), inference.Head{Caller: caller("0.7.0")}, "text")
	if e := errs.As(err); e == nil || e.Status != 503 || e.Code != errs.Provisioning ||
		!strings.Contains(e.Message, "broker is away") {
		t.Errorf("away: %v", err)
	}
}

// A text that ends every server gets three of them, alone after the first, each another one, and
// becomes a dead letter that the caller is told of. A text that shared its first server is
// answered.
func TestPoison(t *testing.T) {
	g := newRig(t, nil)
	var mu sync.Mutex
	var items []work.Item
	g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
		poison := texts[0] == "!poison"
		if !poison && item.Attempt > 0 {
			return false
		}
		mu.Lock()
		items = append(items, *item)
		mu.Unlock()
		data, err := (&work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
			WorkerID: fmt.Sprint("w", item.Attempt), State: work.ServerDied, Attempt: item.Attempt,
			Alone: true}).MarshalMsg(nil)
		if err != nil {
			t.Error(err)
		}
		for range 2 { // the receipt of the first was lost
			if got := s.ask(item.ReplySubject, data); got != work.Stored {
				t.Errorf("receipt %q", got)
			}
		}
		if err := m.Term(); err != nil {
			t.Error(err)
		}
		return true
	})
	innocent := g.start(t.Context(), "innocent")
	innocent.answered(t)
	mu.Lock()
	items = nil
	mu.Unlock()
	_, err := g.encode("!poison")
	e := errs.As(err)
	if e == nil || e.Status != 500 || e.RetryAfter != 0 || len(items) != 3 {
		t.Fatalf("%v after %d servers", err, len(items))
	}
	for i, item := range items {
		if item.Alone != (i > 0) || len(item.DiedOn) != i || int(item.Attempt) != i {
			t.Errorf("attempt %d: alone %v, died on %v", item.Attempt, item.Alone, item.DiedOn)
		}
	}
	js, err := jetstream.New(g.conn)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dlq.List(t.Context(), js, 10)
	if err != nil || len(list) != 1 || !strings.Contains(e.Message, "'"+list[0].ID+"'") ||
		list[0].Attempts != 3 || len(list[0].Workers) != 3 {
		t.Fatalf("%v %+v for %v", err, list, e)
	}
	l, err := dlq.Get(t.Context(), js, list[0].ID)
	if err != nil || !bytes.Contains(l.Work, []byte("!poison")) {
		t.Errorf("%v; its work is not kept", err)
	}
}

// Items above the broker's limit go through the payload store, which is empty afterwards; without a
// store they are refused.
func TestLargeItems(t *testing.T) {
	store, err := payload.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("large ", 300_000)
	for _, with := range []bool{true, false} {
		g := newRig(t, func(o *Options) {
			if with {
				o.Store = store
			}
		})
		var key string
		g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
			if item.PayloadRef == "" {
				return false
			}
			key = item.PayloadRef
			data, err := store.Get(t.Context(), item.PayloadRef, 16<<20)
			if err == nil {
				err = payload.Verify(data, item.PayloadSHA256)
			}
			var p work.Payload
			if err == nil {
				_, err = p.UnmarshalMsg(data)
			}
			if err != nil || len(item.Items) != 0 || item.PayloadBytes != uint64(len(data)) {
				t.Errorf("%v; %d items in the message, %d bytes of %d", err, len(item.Items),
					item.PayloadBytes, len(data))
			}
			item.Items = p.Items
			for i, raw := range p.Items {
				it, err := api.ReadItem(raw, i, api.Limits{})
				if err != nil {
					t.Error(err)
				}
				texts = append(texts, it.Text)
			}
			s.finish(m, item, s.answer(item, texts))
			return true
		})
		res, err := g.encode("small", large, "small")
		if !with {
			if e := errs.As(err); e == nil || e.Status != 413 || !strings.Contains(e.Message, "1048576") {
				t.Errorf("without a store: %v", err)
			}
			continue
		}
		check(t, res, err, "small", large, "small")
		eventually(t, "the payload is not deleted", func() bool {
			_, err := store.Get(t.Context(), key, 16<<20)
			return errors.Is(err, payload.ErrNotFound)
		})
	}
}

// What a request asks for beside its items goes with them when it is too large for a message; a
// worker puts it back.
func TestLargeOptions(t *testing.T) {
	store, err := payload.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := newRig(t, func(o *Options) { o.Store = store })
	types := make([]string, 40_000)
	for i := range types {
		types[i] = fmt.Sprint("an output that is not too short ", i)
	}
	seen := make(chan *work.Item, 1)
	g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, _ []string) bool {
		size := len(m.Data())
		data, err := store.Get(context.Background(), item.PayloadRef, 16<<20)
		var p work.Payload
		if err == nil {
			_, err = p.UnmarshalMsg(data)
		}
		if err != nil || len(item.OutputTypes) > 0 || size > 10_000 {
			t.Errorf("%d outputs in a message of %d bytes, %v", len(item.OutputTypes), size, err)
		}
		item.Attach(&p)
		seen <- item
		s.finish(m, item, s.answer(item, []string{"a"}))
		return true
	})
	session := g.backend.Begin(inference.Head{})
	m, err := session.Model(modelID)
	if err != nil {
		t.Fatal(err)
	}
	w, err := g.gate.Enter(admit.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	_, err = session.Encode(w, m,
		&api.EncodeRequest{Items: []api.Item{{Text: "a", HasText: true}}, OutputTypes: types})
	if err != nil {
		t.Fatal(err)
	}
	item := <-seen
	if !slices.Equal(item.OutputTypes, types) || len(item.Items) != 1 || item.PayloadRef != "" {
		t.Errorf("%d outputs, %d items, %q", len(item.OutputTypes), len(item.Items), item.PayloadRef)
	}
}

// Without a ready worker a request is told to wait for capacity, and the demand is recorded.
func TestNoCapacity(t *testing.T) {
	g := newRig(t, nil)
	g.fleet.Heartbeat(bus.HealthPrefix+"w1", []byte(`{"name":"w1","terminated":true}`))
	if r := g.backend.Begin(inference.Head{}).Refusal(modelID); r != nil {
		t.Errorf("refused before every worker had the time for a heartbeat: %+v", r)
	}
	go g.fleet.Run(t.Context())
	for s := g.fleet.Snapshot(); !s.Settled; s = g.fleet.Snapshot() {
		<-s.Changed()
	}
	if r := g.backend.Begin(inference.Head{}).Refusal(modelID); r == nil || r.Err.Code != errs.Provisioning {
		t.Errorf("before the body: %+v", r)
	}
	_, err := g.encode("text")
	if e := errs.As(err); e == nil || e.Code != errs.Provisioning || e.RetryAfter < time.Second {
		t.Errorf("%v", err)
	}
	if g.demand.lanes[0] != lane {
		t.Errorf("demand: %v", g.demand.lanes)
	}
}
