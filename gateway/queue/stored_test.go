package queue

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

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
		"missing":         {change: func(r *work.Result) { r.ResultRef = "result-none" }, status: 503},
		"another sum":     {change: func(r *work.Result) { r.ResultSHA256 = payload.Sum(nil) }, status: 503},
		"more bytes":      {change: func(r *work.Result) { r.ResultBytes-- }, status: 503},
		"too many":        {change: func(r *work.Result) { r.ResultBytes = 1 << 30 }, status: -1},
		"no bytes":        {change: func(r *work.Result) { r.ResultBytes = 0 }, status: -1},
		"a path":          {change: func(r *work.Result) { r.ResultRef = "../x" }, status: -1},
		"no room":         {change: func(r *work.Result) { r.ResultBytes = payload.MaxBytes }, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := payload.Open(dir)
			if err != nil {
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
			eventually(t, "something is left in the store", func() bool {
				left, err := os.ReadDir(dir)
				return err == nil && len(left) == 0
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
