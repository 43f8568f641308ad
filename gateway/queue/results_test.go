package queue

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// A second result of a slice is a duplicate, one of an answered request is unknown.
func TestReceipts(t *testing.T) {
	g := newRig(t, nil)
	results := make(chan *work.Item, 10)
	s := g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
		if item.Index == 0 {
			data, err := s.answer(item, texts).MarshalMsg(nil)
			if err != nil {
				t.Error(err)
			}
			for _, want := range []string{work.Stored, work.Duplicate} {
				if got := s.ask(item.ReplySubject, data); got != want {
					t.Errorf("receipt %q, want %q", got, want)
				}
			}
			results <- item
		}
		return false // and as usual
	})
	list := texts("text", 40)
	res, err := g.encode(list...)
	check(t, res, err, list...)
	item := <-results
	data, err := s.answer(item, nil).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request stays pending", func() bool {
		return s.ask(item.ReplySubject, data) == work.Unknown
	})
}

// A result in chunks is put together whatever the order; lost chunks are asked for; a chunk that is
// not what it says does not make an answer.
func TestResultsInChunks(t *testing.T) {
	g := newRig(t, nil)
	again := make(chan string, 100)
	g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
		data, err := s.answer(item, texts).MarshalMsg(nil)
		if err != nil {
			t.Error(err)
		}
		sum := sha256.Sum256(data)
		const size = 100
		n := (len(data) + size - 1) / size
		send := func(i int, ask bool, change func(c *work.Chunk)) string {
			c := work.Chunk{Kind: work.KindChunk, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
				ItemIndex: item.Index, Digest: sum[:], Index: uint32(i), Count: uint32(n),
				TotalBytes: uint64(len(data)), Payload: data[i*size : min((i+1)*size, len(data))]}
			if change != nil {
				change(&c)
			}
			b, err := c.MarshalMsg(nil)
			if err != nil {
				t.Error(err)
			}
			if ask {
				return s.ask(item.ReplySubject, b)
			}
			if err := s.conn.Publish(item.ReplySubject, b); err != nil {
				t.Error(err)
			}
			return ""
		}
		send(0, false, func(c *work.Chunk) { c.Count = 1 << 30 })
		send(0, false, func(c *work.Chunk) { c.TotalBytes = 1 << 40 })
		send(0, false, func(c *work.Chunk) { c.WorkItemID = "other.0" })
		send(0, false, func(c *work.Chunk) { c.ItemIndex = 99 })
		wrong := sha256.Sum256([]byte("not what comes"))
		if got := send(0, true, func(c *work.Chunk) {
			c.Digest, c.Count, c.Payload = wrong[:], 1, data
		}); got != "" {
			t.Errorf("a transfer that is not its digest's has the receipt %q", got)
		}
		other := sha256.Sum256([]byte("another result of the slice"))
		send(0, false, func(c *work.Chunk) { c.Digest = other[:] }) // of another worker
		for i := n - 2; i > 1; i-- {                                // without 0 and 1
			send(i, false, nil)
		}
		again <- send(n-1, true, nil)
		send(0, false, nil)
		send(1, false, nil)
		again <- send(n-1, true, nil)
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
		return true
	})
	list := texts("text", 20)
	res, err := g.encode(list...)
	check(t, res, err, list...)
	if first, second := <-again, <-again; first != work.Again || second != work.Stored {
		t.Errorf("receipts %q and %q", first, second)
	}
}

// chunksOf returns a result in chunks of so many bytes, of the slice of an id.
func chunksOf(t *testing.T, id string, index uint32, res *work.Result, size int) (out []work.Chunk) {
	t.Helper()
	data, err := res.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	n := (len(data) + size - 1) / size
	for i := range n {
		out = append(out, work.Chunk{Kind: work.KindChunk, WorkItemID: id, RequestID: "r", ItemIndex: index,
			Digest: sum[:], Index: uint32(i), Count: uint32(n), TotalBytes: uint64(len(data)),
			Payload: data[i*size : min((i+1)*size, len(data))]})
	}
	return out
}

// oneTaken makes a queue and a request "r" of one slice, which a worker has taken.
func oneTaken(t *testing.T, now time.Time) (*Queue, *request) {
	t.Helper()
	q, err := New(Options{Router: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	q.broker = newWorld(1, 0)
	r := newRequest("r", q.line(lane, modelID), admit.Unbounded(t.Context()), work.Item{}, nil,
		[]slice{{end: 1, bytes: 10}})
	r.next = 1
	r.setLocked(&r.slices[0], taken, now)
	return q, r
}

// A worker that meets a broker of smaller messages sends a result anew, in smaller chunks; chunks
// of before that still come are refused.
func TestChunksBecomeSmaller(t *testing.T) {
	now := time.Now()
	q, r := oneTaken(t, now)
	res := &work.Result{WorkItemID: "r.0", Success: true, WorkerID: "a",
		Results: []msgp.Raw{msgp.AppendString(nil, "text")}}
	large, small := chunksOf(t, "r.0", 0, res, 40), chunksOf(t, "r.0", 0, res, 20)
	for i := range len(large) - 1 {
		if _, err := q.chunk(r, &large[i], false, now); err != nil {
			t.Fatal(err)
		}
	}
	other := small[0]
	other.TotalBytes++
	if _, err := q.chunk(r, &other, false, now); err == nil || r.slices[0].transfers[0].have == 0 {
		t.Errorf("a chunk of another whole: %v, with %d bytes here", err, r.slices[0].transfers[0].have)
	}
	var said work.Receipt
	for i := range small {
		if i == 1 {
			if _, err := q.chunk(r, &large[0], false, now); err == nil {
				t.Error("a chunk of before is taken")
			}
		}
		reply, err := q.chunk(r, &small[i], i == len(small)-1, now)
		if err == nil && reply != nil {
			_, err = said.UnmarshalMsg(reply)
		}
		if err != nil {
			t.Fatalf("chunk %d of %d: %v", i, len(small), err)
		}
	}
	if said.State != work.Stored {
		t.Errorf("the receipt is %+v", said)
	}
}

// Two transfers of a slice are put together at once, of a worker and of one that ran it again. A
// third waits until one of them has rested for staleTransfer, and then takes the place of the one
// that rested longest.
func TestTransfersOfASliceAreBounded(t *testing.T) {
	now := time.Now()
	q, r := oneTaken(t, now)
	of := map[string][]work.Chunk{}
	for _, worker := range []string{"a", "b", "c"} {
		of[worker] = chunksOf(t, "r.0", 0, &work.Result{WorkItemID: "r.0", Success: true, WorkerID: worker,
			Results: []msgp.Raw{msgp.AppendString(nil, "text")}}, 20)
	}
	send := func(worker string, i int, after time.Duration) string {
		reply, err := q.chunk(r, &of[worker][i], i == len(of[worker])-1, now.Add(after))
		if err != nil {
			t.Errorf("chunk %d of %s: %v", i, worker, err)
		}
		if reply == nil {
			return ""
		}
		var said work.Receipt
		if _, err := said.UnmarshalMsg(reply); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(said.State, len(said.Missing))
	}
	last := len(of["a"]) - 1
	again := fmt.Sprint(work.Again, last-1)
	send("a", 0, 0)
	send("b", 0, time.Second)
	send("c", 0, staleTransfer-1)
	if got := send("c", last, staleTransfer-1); got != "" || len(r.slices[0].transfers) != maxTransfers {
		t.Errorf("a third transfer has the receipt %q, with %d", got, len(r.slices[0].transfers))
	}
	send("c", 0, staleTransfer) // in place of a
	if got := send("c", last, staleTransfer); got != again {
		t.Errorf("the transfer that took a place has the receipt %q, want %q", got, again)
	}
	if got := send("b", last, staleTransfer); got != again {
		t.Errorf("the younger of the first two has the receipt %q, want %q", got, again)
	}
	if len(r.slices[0].transfers) != maxTransfers {
		t.Errorf("%d transfers", len(r.slices[0].transfers))
	}
}

// The chunks of a slice hold no result of another one.
func TestChunksAreOfTheirSlice(t *testing.T) {
	q, err := New(Options{Router: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	q.broker = newWorld(1, 0)
	r := newRequest("r", q.line(lane, modelID), admit.Unbounded(t.Context()), work.Item{}, nil,
		[]slice{{end: 1, bytes: 10}, {first: 1, end: 2, bytes: 10}})
	r.next = 2
	now := time.Now()
	for i := range r.slices {
		r.setLocked(&r.slices[i], taken, now)
	}
	res := &work.Result{WorkItemID: "r.1", Index: 1, Success: true,
		Results: []msgp.Raw{msgp.AppendString(nil, "text")}}
	for i, c := range chunksOf(t, "r.0", 0, res, 1<<10) {
		if reply, err := q.chunk(r, &c, true, now); err == nil || reply != nil {
			t.Errorf("chunk %d: %q, %v", i, reply, err)
		}
	}
	if r.left != 2 || r.slices[0].state != taken || r.slices[1].state != taken {
		t.Errorf("%d slices are left", r.left)
	}
}

// The first failed slice in the order of the request decides, whichever fails first; those after it
// are cancelled at once.
func TestTheFirstErrorDecides(t *testing.T) {
	g := newRig(t, nil)
	var s *sidecar
	release := make(chan struct{})
	act := func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
		s.mark(item, work.Taken, false)
		if item.Index == 0 { // later ones run first
			s.all.Go(func() {
				<-release
				s.finish(m, item, s.answer(item, texts))
			})
			return true
		}
		return false
	}
	s = g.sidecar("w1", act)
	list := texts("text", 128)
	list[3], list[40], list[127] = "!error 3", "!error 40", "!error 127"
	p := g.start(t.Context(), list...)
	eventually(t, "slices after the error are not cancelled", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.cancels) > 0
	})
	select {
	case <-p.done:
		t.Error("a later error decided")
	default:
	}
	close(release)
	<-p.done
	if e := errs.As(p.err); e == nil || e.Message != "Field 'items[3]': !error 3" || e.Param != "items" {
		t.Errorf("%v", p.err)
	}
}

// A result that is not what the slice asked for is an error of the whole request, never an answer
// with something missing.
func TestStrangeResults(t *testing.T) {
	for name, change := range map[string]func(r *work.Result){
		"fewer results":      func(r *work.Result) { r.Results = r.Results[1:] },
		"more results":       func(r *work.Result) { r.Results = append(r.Results, r.Results[0]) },
		"another type":       func(r *work.Result) { r.Results[0] = []byte{0xc3} },
		"no output":          func(r *work.Result) { r.Results[1] = []byte{0x80} },
		"an error of nobody": func(r *work.Result) { r.Success, r.Err = false, []byte("nonsense") },
		"no reason":          func(r *work.Result) { r.Success, r.Results = false, nil },
	} {
		g := newRig(t, nil)
		g.sidecar("w1", func(s *sidecar, m jetstream.Msg, item *work.Item, texts []string) bool {
			res := s.answer(item, texts)
			if item.Index == 1 {
				change(res)
			}
			s.finish(m, item, res)
			return true
		})
		res, err := g.encode(texts("text", 64)...)
		if e := errs.As(err); e == nil || e.Status != 500 || res != nil {
			t.Errorf("%s: %+v %v", name, res, err)
		}
	}
}

// FuzzInbox checks that nothing that arrives in the inbox ends the gateway, or makes it hold more
// than what arrived.
func FuzzInbox(f *testing.F) {
	seed := func(m interface{ MarshalMsg([]byte) ([]byte, error) }) {
		b, err := m.MarshalMsg(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("r", b, true)
		f.Add("r.0.0", b, false)
	}
	sum := sha256.Sum256([]byte("x"))
	seed(&work.Result{WorkItemID: "r.0", Success: true, Results: []msgp.Raw{{0xc0}}})
	seed(&work.Result{WorkItemID: "r.1", Index: 1, Err: errs.Invalid("a", "b").AppendMsgpack(nil)})
	seed(&work.Mark{Kind: work.KindMark, WorkItemID: "r.0", WorkerID: "w", State: work.Taken})
	seed(&work.Mark{Kind: work.KindMark, WorkItemID: "r.0", WorkerID: "w", State: work.ServerDied,
		Alone: true})
	seed(&work.Chunk{Kind: work.KindChunk, WorkItemID: "r.0", Digest: sum[:], Count: 2, TotalBytes: 2,
		Payload: []byte("x")})
	f.Add("r.0.0", []byte(`{"stream":"S","seq":3}`), false)
	f.Add("r.9.0", []byte(`{"error":{"err_code":10077}}`), false)
	f.Add("other", []byte{0xdf, 0xff, 0xff, 0xff, 0xff}, true)
	f.Fuzz(func(t *testing.T, to string, data []byte, ask bool) {
		q, err := New(Options{Router: "gw"})
		if err != nil {
			t.Fatal(err)
		}
		q.broker = newWorld(1, 0)
		gate := admit.New(admit.Options{})
		w, err := gate.Enter(admit.Request{})
		if err != nil {
			t.Fatal(err)
		}
		cuts := []slice{
			{end: 1, state: stored}, {first: 1, end: 2, state: sent, tries: 1}, {first: 2, end: 3},
		}
		r := newRequest("r", q.line(lane, modelID), w, work.Item{}, make([]msgp.Raw, 3), cuts)
		r.next = 2
		q.requests["r"] = r
		m := &nats.Msg{Subject: q.inbox + to, Data: data}
		if ask {
			m.Reply = bus.SidecarInboxes + ".reply.1"
		}
		for range 3 {
			q.receive(m)
		}
		if held := w.Held(); held > 3*int64(len(data)) {
			t.Errorf("%d bytes are held for %d that came", held, len(data))
		}
		r.mu.Lock()
		r.endLocked(time.Now())
		r.mu.Unlock()
		w.End()
		q.Close()
		if gate.Held() != 0 {
			t.Errorf("%d bytes are left", gate.Held())
		}
	})
}
