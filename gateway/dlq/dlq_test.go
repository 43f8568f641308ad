package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

var lane = bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}

func letter(t *testing.T, id string) dlq.Letter {
	t.Helper()
	item := work.Item{WorkItemID: id, Operation: work.Encode, ModelID: "org/m", PoolName: "default",
		Items: []msgp.Raw{msgp.AppendString(nil, "secret")}, Attempt: 3, Index: 7,
		DiedOn: []string{"w1"}}
	data, err := item.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	return dlq.Letter{ID: id, Time: time.Now().UTC(), Subject: lane.WorkSubject("org/m"), Model: "org/m",
		Reason: "it ended 3 servers", Attempts: 3, Workers: []string{"w1", "w2"}, Work: data}
}

// Letters are stored once each, listed newest first without their work, read whole, and dropped.
func TestLetters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	js, err := jetstream.New(bustest.Start(t, nil).Connect(bus.GatewayInboxes))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := dlq.List(ctx, js, 10); err != nil || len(list) != 0 {
		t.Errorf("without a stream: %v %v", list, err)
	}
	if err := dlq.Drop(ctx, js, "x"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("drop without a stream: %v", err)
	}
	for _, i := range []int{0, 1, 2, 1, 3} { // one of them twice
		if err := dlq.Store(ctx, js, bus.Streams{}, letter(t, fmt.Sprint("r.", i))); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(limit int) (s string) {
		list, err := dlq.List(ctx, js, limit)
		if err != nil {
			t.Error(err)
		}
		for _, l := range list {
			if s += l.ID + " "; l.Work != nil || l.Model != "org/m" || l.Attempts != 3 {
				t.Errorf("%+v", l)
			}
		}
		return strings.TrimSpace(s)
	}
	if got := ids(10); got != "r.3 r.2 r.1 r.0" {
		t.Errorf("%s", got)
	}
	if got := ids(2); got != "r.3 r.2" {
		t.Errorf("the newest two: %s", got)
	}
	want := letter(t, "r.2")
	got, err := dlq.Get(ctx, js, "r.2")
	if err != nil || string(got.Work) != string(want.Work) || got.Reason != want.Reason {
		t.Errorf("%v %+v", err, got)
	}
	if err := dlq.Drop(ctx, js, "r.2"); err != nil {
		t.Error(err)
	}
	if got := ids(10); got != "r.3 r.1 r.0" {
		t.Errorf("after a drop: %s", got)
	}
	if _, err := dlq.Get(ctx, js, "r.2"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("dropped: %v", err)
	}
	large := letter(t, "large")
	large.Work = make([]byte, dlq.MaxBytes+1)
	if err := dlq.Store(ctx, js, bus.Streams{}, large); err != nil {
		t.Error(err)
	}
	if got, err := dlq.Get(ctx, js, "large"); err != nil || got.Work != nil ||
		!strings.Contains(got.Reason, "is not kept") {
		t.Errorf("%v %+v", err, got.Reason)
	}
	bad := letter(t, "bad")
	bad.Subject = "sie.health.x"
	if dlq.Store(ctx, js, bus.Streams{}, bad) == nil {
		t.Error("a letter of another subject was stored")
	}
}

// Replayed work runs alone under a new identity, and its outcome is told: results, the worker's
// error, the end of its server, or that nobody answered.
func TestReplay(t *testing.T) {
	server := bustest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, worker := server.Connect(bus.GatewayInboxes), server.Connect(bus.SidecarInboxes)
	js, err := jetstream.New(worker)
	if err != nil {
		t.Fatal(err)
	}
	beats, err := worker.SubscribeSync(bus.GatewayPrefix + "*")
	if err == nil {
		err = worker.Flush() // before the first heartbeat
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, reply := range map[string]func(item *work.Item) msgp.Marshaler{
		"results": func(i *work.Item) msgp.Marshaler {
			return &work.Result{WorkItemID: i.WorkItemID, Success: true, WorkerID: "w3",
				Results: []msgp.Raw{msgp.AppendNil(nil)}}
		},
		"error": func(i *work.Item) msgp.Marshaler {
			return &work.Result{WorkItemID: i.WorkItemID, WorkerID: "w3",
				Err: errs.Invalid("items", "wrong").AppendMsgpack(nil)}
		},
		"died": func(i *work.Item) msgp.Marshaler {
			return &work.Mark{Kind: work.KindMark, WorkItemID: i.WorkItemID, WorkerID: "w3",
				State: work.ServerDied, Alone: true}
		},
		"chunks": func(i *work.Item) msgp.Marshaler {
			return &work.Chunk{Kind: work.KindChunk, WorkItemID: i.WorkItemID, Payload: []byte("x")}
		},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := js.Consumer(ctx, bus.StreamName(lane.Pool),
					bus.ConsumerName(lane.WorkSubject("org/m")))
				if err != nil {
					continue
				}
				got, err := c.Fetch(1, jetstream.FetchMaxWait(time.Second),
					jetstream.FetchPriorityGroup(bus.PriorityGroup))
				if err != nil {
					continue
				}
				for m := range got.Messages() {
					var item work.Item
					_, err := item.UnmarshalMsg(m.Data())
					if err != nil || !item.Alone || item.Attempt != 0 || item.Index != 0 ||
						len(item.DiedOn) > 0 ||
						strings.HasPrefix(item.WorkItemID, "r.1") || len(item.Items) != 1 {
						t.Errorf("%v %+v", err, item)
					}
					data, err := reply(&item).MarshalMsg(nil)
					if err != nil {
						t.Error(err)
					}
					if _, err := worker.Request(item.ReplySubject, data, 2*time.Minute); err != nil {
						t.Errorf("%s: no receipt: %v", name, err)
					}
					if err := m.DoubleAck(ctx); err != nil {
						t.Error(err)
					}
					return
				}
			}
		}()
		o, err := dlq.Replay(ctx, conn, bus.Streams{}, letter(t, "r.1"))
		if err != nil || o.Died != (name == "died") || (o.Err != nil) != (name == "error") ||
			(o.Results == 1) != (name == "results") || o.Worker != "w3" && name != "chunks" {
			t.Errorf("%s: %+v %v", name, o, err)
		}
		if o.Err != nil && o.Err.Message != "wrong" {
			t.Errorf("%v", o.Err)
		}
		<-done
		if _, err := beats.NextMsg(2 * time.Minute); err != nil {
			t.Errorf("%s: no heartbeat: %v", name, err)
		}
	}
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = dlq.Replay(brief, conn, bus.Streams{}, letter(t, "r.1"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a worker: %v", err)
	}
	if _, err := dlq.Replay(brief, conn, bus.Streams{}, dlq.Letter{ID: "x"}); err == nil {
		t.Error("a letter without work was replayed")
	}
}
