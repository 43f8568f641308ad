package queue

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// failing is a store whose next calls fail.
type failing struct {
	payload.Store
	gets atomic.Int32
}

var errDenied = errors.New("permission denied")

func (f *failing) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if f.gets.Add(-1) >= 0 {
		return nil, errDenied
	}
	return f.Store.Get(ctx, key, limit)
}

// othersTexts is the key of the payload of another request.
const othersTexts = "0190a6b4-7e2c-7000-8000-000000000000.0"

// Results that a worker left in the store are fetched, checked, counted and deleted. A store that
// fails is tried again, then told as an error that a client may retry, and nothing is left.
func TestStoredResults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(ref *work.Result) // of what is told
		fails  int32
		status int // 0: answered; -1: after a retry by the worker
	}{
		"as it should be": {},
		"fails twice":     {fails: 2},
		"fails":           {fails: 100, status: 503},
		"missing": {change: func(r *work.Result) {
			r.ResultRef = payload.ResultKey("another", 0, "epoch")
		}, status: 503},
		"another sum":     {change: func(r *work.Result) { r.ResultSHA256 = payload.Sum(nil) }, status: 503},
		"more bytes":      {change: func(r *work.Result) { r.ResultBytes-- }, status: 503},
		"too many":        {change: func(r *work.Result) { r.ResultBytes = 1 << 30 }, status: -1},
		"no bytes":        {change: func(r *work.Result) { r.ResultBytes = 0 }, status: -1},
		"another's texts": {change: func(r *work.Result) { r.ResultRef = othersTexts }, status: -1},
		"a path":          {change: func(r *work.Result) { r.ResultRef = "../x" }, status: -1},
		"no room":         {change: func(r *work.Result) { r.ResultBytes = payload.MaxBytes }, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := payload.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Put(context.Background(), othersTexts, []byte("texts")); err != nil {
				t.Fatal(err)
			}
			f := &failing{Store: store}
			f.gets.Store(c.fails)
			g := newRig(t, func(o *Options) { o.Store = f })
			if c.status == 400 {
				if err := g.gate.Reserve(1<<30 - 100<<20); err != nil {
					t.Fatal(err)
				}
				defer g.gate.Free(1<<30 - 100<<20)
			}
			said := ""
			g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
				if !item.AcceptsRef {
					t.Error("the gateway takes no stored results")
				}
				whole, err := s.answer(item, texts).MarshalMsg(nil)
				if err != nil {
					t.Error(err)
				}
				key := payload.ResultKey(item.WorkItemID, 0, "epoch")
				if err := store.Put(context.Background(), key, whole); err != nil {
					t.Error(err)
				}
				ref := s.answer(item, texts)
				ref.Results, ref.ResultRef, ref.ResultSHA256 = nil, key, payload.Sum(whole)
				ref.ResultBytes = uint64(len(whole))
				good := *ref
				if c.change != nil {
					c.change(ref)
				}
				bad, err := ref.MarshalMsg(nil)
				if err != nil {
					t.Error(err)
				}
				if c.status < 0 { // it gets no receipt
					if said = s.ask(item.ReplySubject, bad); said != "" {
						t.Errorf("the receipt %q", said)
					}
					if bad, err = good.MarshalMsg(nil); err != nil {
						t.Error(err)
					}
				}
				for said = ""; said == "" && s.ctx.Err() == nil; {
					said = s.ask(item.ReplySubject, bad)
				}
				if said != work.Stored || c.change != nil { // as a worker does
					_ = store.Delete(context.Background(), key)
				}
				if err := m.Ack(); err != nil {
					t.Error(err)
				}
				return true
			})
			res, err := g.encode("a", "b")
			if c.status <= 0 {
				check(t, res, err, "a", "b")
			} else if e := errs.As(err); e == nil || e.Transient() != (c.status == 503) && c.status != 400 ||
				c.status == 503 && !strings.Contains(e.Message, "payload store") {
				t.Errorf("%v", err)
			}
			eventually(t, "more or less than another's texts is left in the store", func() bool {
				left, err := os.ReadDir(dir)
				return err == nil && len(left) == 1 && left[0].Name() == othersTexts
			})
		})
	}
}

// What a worker's process that ended may have stored is deleted with the request, and so is the
// result of a request whose client left.
func TestAbandonedResults(t *testing.T) {
	dir := t.TempDir()
	store, err := payload.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := newRig(t, func(o *Options) { o.Store = store })
	g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
		if item.Attempt > 0 {
			return false
		}
		mark := work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
			WorkerID: "w1", State: work.Taken, WorkerEpoch: "gone"}
		told, err := mark.MarshalMsg(nil)
		if err == nil {
			err = s.conn.Publish(item.ReplySubject, told)
		}
		if err == nil {
			key := payload.ResultKey(item.WorkItemID, 0, "gone")
			err = store.Put(context.Background(), key, []byte("a result that nobody was told of"))
		}
		mark.State = work.ServerDied // this worker's next process publishes it again
		if told, err2 := mark.MarshalMsg(nil); err == nil && err2 == nil {
			s.ask(item.ReplySubject, told)
		}
		if err != nil {
			t.Error(err)
		}
		_ = m.Ack()
		return true
	})
	res, err := g.encodeAs(t.Context(), inference.Head{}, "a", "b")
	check(t, res, err, "a", "b")
	eventually(t, "something is left in the store", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0
	})
}

// watched is a store that looks at what is held while it stores.
type watched struct {
	payload.Store
	look func(bytes int)
}

func (w *watched) Put(ctx context.Context, key string, data []byte) error {
	w.look(len(data))
	return w.Store.Put(ctx, key, data)
}

// The copy of a slice's items that goes to the store counts as held while it is stored, and no
// longer; one for which there is no room is not made.
func TestTheCopyForTheStoreIsHeld(t *testing.T) {
	store, err := payload.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gate := admit.New(admit.Options{})
	w, err := gate.Enter(admit.Request{Bytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	before, puts := w.Held(), 0
	watch := &watched{store, func(bytes int) {
		puts++
		if held := w.Held() - before; held < int64(bytes) || held > 2*int64(bytes)+maxHeadroom {
			t.Errorf("%d bytes are held for a payload of %d", held, bytes)
		}
	}}
	q, err := New(Options{Router: "gw", Store: watch})
	if err != nil {
		t.Fatal(err)
	}
	const id = "0190a6b4-7e2c-7000-8000-000000000001"
	large := msgp.AppendString(nil, strings.Repeat("x", 1<<20))
	r := newRequest(id, q.line(lane, modelID), w, work.Item{}, []msgp.Raw{large, large},
		cut([]msgp.Raw{large, large}, 1, 0, 1<<19, nil))
	if err := q.offload(r); err != nil || puts != 2 || w.Held() != before {
		t.Errorf("%v; %d payloads are stored, %d bytes are held and %d were", err, puts, w.Held(), before)
	}
	if err := gate.Reserve(1<<30 - 1<<20); err != nil { // all but what the copy takes
		t.Fatal(err)
	}
	if err := q.offload(r); err == nil || puts != 2 {
		t.Errorf("without room for the copy: %v, %d payloads are stored", err, puts)
	}
}

// A dead letter keeps the payload that it names, and its work leaves the stream; the payloads of
// the request's other slices are deleted.
func TestADeadLetterKeepsItsPayload(t *testing.T) {
	store, err := payload.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Router: "gw", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(1, 0)
	w.stream = []*stored1{{seq: 7}, {seq: 8}}
	q.begin(w)
	const id = "0190a6b4-7e2c-7000-8000-000000000002"
	large := msgp.AppendString(nil, strings.Repeat("x", 1<<20))
	r := newRequest(id, q.line(lane, modelID), admit.Unbounded(t.Context()), work.Item{RequestID: id},
		[]msgp.Raw{large, large}, cut([]msgp.Raw{large, large}, 1, 0, 1<<19, nil))
	if err := q.offload(r); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.next = len(r.slices)
	for i := range r.slices {
		r.slices[i].seq = uint64(7 + i)
		r.setLocked(&r.slices[i], taken, time.Now())
	}
	r.slices[0].burying, r.slices[0].aloneDied = true, aloneDeaths
	q.bury(r, 0)
	r.mu.Unlock()
	<-r.wake // it failed
	r.mu.Lock()
	r.endLocked(time.Now())
	r.mu.Unlock()
	q.discard(r.keys...)
	q.Close()
	var item work.Item
	if len(w.letters) != 1 || w.letters[0].ID != id+".0" {
		t.Fatalf("%d letters", len(w.letters))
	}
	if _, err := item.UnmarshalMsg(w.letters[0].Work); err != nil {
		t.Fatal(err)
	}
	data, err := store.Get(t.Context(), item.PayloadRef, int64(item.PayloadBytes))
	if err == nil {
		err = payload.Verify(data, item.PayloadSHA256)
	}
	if err != nil {
		t.Errorf("the letter's payload: %v", err)
	}
	if _, err := store.Get(t.Context(), id+".1", 1<<30); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("the other slice's payload: %v", err)
	}
	if len(w.stream) != 1 || w.stream[0].seq != 8 {
		t.Errorf("%d messages are left in the stream", len(w.stream))
	}
}

// interrupted is a store whose first deletion lasts until its context ends.
type interrupted struct {
	payload.Store
	once  sync.Once
	begun chan struct{}
}

func (s *interrupted) Delete(ctx context.Context, key string) error {
	s.once.Do(func() {
		close(s.begun)
		<-ctx.Done()
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Store.Delete(ctx, key)
}

// A queue that is closed deletes all payloads that wait to be deleted, also the one whose deletion
// its end interrupts.
func TestCloseDeletesWhatWaits(t *testing.T) {
	dir := t.TempDir()
	store, err := payload.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &interrupted{Store: store, begun: make(chan struct{})}
	q, err := New(Options{Router: "gw", Store: s})
	if err != nil {
		t.Fatal(err)
	}
	q.begin(newWorld(1, 0))
	for i := range 50 {
		key := payload.ResultKey("r.0", uint32(i), "epoch")
		if err := store.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
		q.discard(key)
	}
	<-s.begun
	q.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d payloads are left, %v", len(left), err)
	}
}
