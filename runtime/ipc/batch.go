package ipc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
)

// batch is one RunBatch that runs.
type batch struct {
	id    string // of the call
	total uint32
	began time.Time
	done  atomic.Uint32 // slices with an outcome
}

// slice is one slice that runs. Its work can be cancelled from any connection.
type slice struct {
	leave func() bool // ends its tie to the connection

	mu    sync.Mutex
	work  *admit.Work // nil until it is admitted
	cause error       // of its cancellation
}

// cancel ends the slice's work, now or as soon as it is admitted, and reports whether it was not
// cancelled before.
func (x *slice) cancel(cause error) bool {
	x.mu.Lock()
	first, w := x.cause == nil, x.work
	if first {
		x.cause = cause
	}
	x.mu.Unlock()
	if w != nil {
		w.Cancel(cause)
	}
	return first
}

// attach says what cancel ends.
func (x *slice) attach(w *admit.Work) {
	x.mu.Lock()
	cause := x.cause
	x.work = w
	x.mu.Unlock()
	if cause != nil {
		w.Cancel(cause)
	}
}

func (c *conn) runBatch(r *wire.Request, held int64) {
	if b, ok := decode[wire.RunBatchRequest](c, r); ok {
		c.run(r, b.ModelID, b.Items, held)
	} else {
		c.server.gate.Free(held)
	}
}

// giveBack answers a RunBatch for whose slices there is no room.
func (c *conn) giveBack(r *wire.Request, why *errs.Error) {
	b, ok := decode[wire.RunBatchRequest](c, r)
	if !ok {
		return
	}
	rest := &together{most: transferLimit(r)}
	for i := range b.Items {
		o := failed(&b.Items[i], nil, why, nil)
		rest.add(&o)
	}
	c.send(message{id: r.RequestID, data: rest.response(r.RequestID)})
}

// processBatch reads the older form of a RunBatch.
func (c *conn) processBatch(r *wire.Request, held int64) {
	b, ok := decode[wire.ProcessBatchRequest](c, r)
	if !ok {
		c.server.gate.Free(held)
		return
	}
	op := map[string]string{
		wire.MethodProcessEncodeBatch: "encode", wire.MethodProcessScoreBatch: "score",
		wire.MethodProcessExtractBatch: "extract",
	}[r.Method]
	items := make([]wire.RunItem, len(b.Items))
	for i, raw := range b.Items {
		items[i] = wire.RunItem{Op: op, Encode: raw}
		// the outcome is for the ids that the work item has
		var ids wire.RunItem
		if _, err := ids.UnmarshalMsg(raw); err == nil {
			items[i].WorkItemID, items[i].RequestID = ids.WorkItemID, ids.RequestID
			items[i].ItemIndex = ids.ItemIndex
		}
	}
	c.run(r, b.ModelID, items, held)
}

// run runs slices at once and answers the call when all have an outcome. Outcomes go out as their
// slices end if the caller takes that, all but the last, which ends the call; else together. held
// bytes are reserved for the slices: each frees its own when its outcome is written, and run what
// is left.
func (c *conn) run(r *wire.Request, model string, items []wire.RunItem, held int64) {
	s := c.server
	r.Body = nil // the items have copies
	for i := range items {
		held -= int64(len(raw(&items[i])))
	}
	s.gate.Free(held)
	b := &batch{id: r.RequestID, total: uint32(len(items)), began: time.Now()}
	s.mu.Lock()
	s.batches[b] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.batches, b)
		s.mu.Unlock()
	}()
	rest := &together{most: transferLimit(r)}
	put := func(o *outcome) {
		last := b.done.Add(1) == b.total
		if r.AcceptsOutcomes && !last {
			c.sendOutcome(r, o)
		} else {
			rest.add(o)
		}
	}
	var all sync.WaitGroup
	for i := range items {
		it := &items[i]
		select {
		case s.slots <- struct{}{}:
		default:
			n := int64(len(raw(it)))
			o := failed(it, nil, errs.FullQueue(cap(s.slots), 1, cap(s.slots)), func() { s.gate.Free(n) })
			put(&o)
			continue
		}
		x := s.begin(c, it.WorkItemID)
		run := func() {
			o := s.runSlice(it, model, x)
			s.end(it.WorkItemID, x)
			<-s.slots
			put(&o)
		}
		if i == len(items)-1 { // most calls have one slice: it needs no goroutine of its own
			run()
		} else {
			all.Add(1)
			s.crew.run(func() { defer all.Done(); run() })
		}
	}
	all.Wait()
	c.send(message{id: r.RequestID, data: rest.response(r.RequestID), done: rest.release})
}

// begin notes a slice that runs. It is cancelled when its connection ends.
func (s *Server) begin(c *conn, id string) *slice {
	x := &slice{}
	x.leave = context.AfterFunc(c.ctx, func() { x.cancel(admit.ErrClientGone) })
	s.mu.Lock()
	s.slices[id] = append(s.slices[id], x)
	s.mu.Unlock()
	return x
}

func (s *Server) end(id string, x *slice) {
	x.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.slices[id]
	for i := range left {
		if left[i] == x {
			left = append(left[:i:i], left[i+1:]...)
			break
		}
	}
	if s.slices[id] = left; len(left) == 0 {
		delete(s.slices, id)
	}
}

// together collects the outcomes of a call that gets them at once.
type together struct {
	most int // bytes of the response

	mu       sync.Mutex
	outcomes []byte
	n        uint32
	releases []func()
}

// responseHead bounds what surrounds the outcomes of a response.
const responseHead = 1 << 10

func (t *together) add(o *outcome) {
	raw := o.append(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.outcomes)+len(raw)+responseHead > t.most {
		// a smaller batch has room for it, unless it is too large alone
		if len(raw)+responseHead > t.most {
			*o = o.tooLarge(len(raw), t.most)
		} else {
			*o = o.again(againDelay)
		}
		raw = o.append(nil)
	}
	t.outcomes = append(t.outcomes, raw...)
	t.n++
	if o.release != nil {
		t.releases = append(t.releases, o.release)
	}
}

func (t *together) release() {
	for _, f := range t.releases {
		f()
	}
}

// response returns the serialised Response that ends a RunBatch.
func (t *together) response(id string) []byte {
	dst := make([]byte, 0, len(t.outcomes)+responseHead)
	dst = appendResponseHead(dst, wire.KindResponse, id)
	dst = msgp.AppendString(msgp.AppendMapHeader(dst, 1), "outcomes")
	return append(msgp.AppendArrayHeader(dst, t.n), t.outcomes...)
}

// cancelItems ends slices of any connection.
func (c *conn) cancelItems(r *wire.Request) {
	b, ok := decode[wire.CancelRequest](c, r)
	if !ok {
		return
	}
	s := c.server
	var found []*slice
	s.mu.Lock()
	for _, id := range b.WorkItemIDs {
		found = append(found, s.slices[id]...)
	}
	s.mu.Unlock()
	n := 0
	for _, x := range found {
		if x.cancel(admit.ErrClientGone) {
			n++
		}
	}
	c.reply(r, &wire.CancelResponse{Cancelled: n})
}
