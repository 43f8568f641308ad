package worker

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// Tombstones are bounded: the oldest are forgotten, and none that is newer.
func TestTombstonesAreBounded(t *testing.T) {
	var all tombs
	now := time.Unix(1_700_000_000, 0)
	for i := range maxTombs + 10 {
		all.add(now, fmt.Sprint("r", i), 0)
	}
	if len(all.at) != maxTombs || all.order.Len() != maxTombs {
		t.Errorf("%d tombstones in an order of %d", len(all.at), all.order.Len())
	}
	if all.has(now, "r9", 0) || !all.has(now, "r10", 0) || !all.has(now, fmt.Sprint("r", maxTombs+9), 0) {
		t.Error("others than the oldest are forgotten")
	}
}

// The bound counts requests: one that is cancelled again and again takes the place of no other, and
// is remembered from its first slice that was ever cancelled, for as long as after its last.
func TestTombstonesCountRequests(t *testing.T) {
	var all tombs
	now := time.Unix(1_700_000_000, 0)
	for i := range maxTombs {
		all.add(now, fmt.Sprint("r", i), 5)
	}
	for range maxTombs {
		all.add(now.Add(time.Second), "r0", 3)
	}
	all.add(now.Add(time.Second), "r0", 9)
	if !all.has(now, "r1", 5) || !all.has(now, fmt.Sprint("r", maxTombs-1), 5) {
		t.Error("a request that was cancelled often pushes others out")
	}
	all.add(now.Add(time.Second), "new", 0)
	if all.has(now, "r1", 5) || !all.has(now, "r2", 5) || !all.has(now, "r0", 3) || all.has(now, "r0", 2) ||
		!all.has(now, "new", 0) {
		t.Error("one more takes the place of another than the oldest")
	}
	if n := all.order.Len(); len(all.at) != maxTombs || n != maxTombs {
		t.Errorf("%d tombstones in an order of %d", len(all.at), n)
	}
	end := now.Add(time.Second + tombAge)
	if !all.has(end, "r0", 3) || all.has(end.Add(1), "r0", 3) || all.has(end, "r2", 5) {
		t.Error("a tombstone is not as old as it may be")
	}
	all.add(end, "last", 0)
	if len(all.at) != 3 || all.order.Len() != 3 {
		t.Errorf("%d tombstones are left when the others are old", len(all.at))
	}
}

// Acknowledgements that wait until the stream is known are bounded; the broker gives the messages
// of those that are dropped to a worker again.
func TestLateAcknowledgementsAreBounded(t *testing.T) {
	c := newCore(lane, "w", time.Minute, newSim(t, 1))
	for range maxLate + 10 {
		c.settleOne(delivery{"0.1", 0}, c.do.ack)
	}
	if len(c.late) != maxLate {
		t.Errorf("%d acknowledgements wait", len(c.late))
	}
}

// An acknowledgement that was due before the stream was known goes out when it is the same stream,
// and never to another one.
func TestLateAcknowledgementsAreSent(t *testing.T) {
	for same, want := range map[bool]int{true: 0, false: 1} {
		s := connected(t)
		m := s.delivers(simModels[0], true, nil)
		x := s.c.slices[m.id]
		s.c.disconnect()
		s.c.connect(0)
		s.records[m.id].receipted = true
		s.c.settle(x, s.c.do.ack)
		if len(s.msgs) != 1 || len(s.c.late) != 1 {
			t.Errorf("%d messages, %d late", len(s.msgs), len(s.c.late))
		}
		created := s.created
		if !same {
			created = created.Add(time.Second)
		}
		s.c.listedAll(created, nil, nil)
		if len(s.msgs) != want || len(s.c.late) != 0 {
			t.Errorf("the same stream: %v; %d messages are left, %d late", same, len(s.msgs), len(s.c.late))
		}
	}
}

// A slice that was cancelled while the server had it is not run again when the connection to the
// server comes back.
func TestWhatWasCancelledIsNotRunAfterAReconnect(t *testing.T) {
	s := newSim(t, 1)
	s.connectServer()
	for _, id := range []string{"kept", "cancelled"} {
		x := &slice{item: work.Item{WorkItemID: id, ReplySubject: "_INBOX.g." + id}, state: sent,
			model: s.c.model("org/a"), until: s.now.Add(time.Hour), call: "1"}
		x.model.running++
		s.c.inServer++
		s.c.slices[id] = x
	}
	s.c.drop(s.c.slices["cancelled"], "cancelled")
	s.c.lost()
	s.c.up(&ipc.PingResponse{Ready: true}, true)
	if s.c.slices["cancelled"] != nil || s.c.slices["kept"] == nil || s.c.slices["kept"].state != queued ||
		len(s.c.models["org/a"].waiting) != 1 || s.c.inServer != 0 {
		t.Errorf("after the reconnect: %+v", s.c.slices)
	}
}

// stores is a sim with a payload store.
type stores struct {
	*sim
	bytes []int // of what was stored
}

func (s *stores) store(_ *slice, _ string, data []byte) { s.bytes = append(s.bytes, len(data)) }

// A result of which a transfer has room for no more is sent, one of a byte more is stored; and a
// sidecar sends what gateways take.
func TestTransfersAreBounded(t *testing.T) {
	if c := newCore(lane, "w", time.Minute, nil); c.transfer != work.MaxTransferBytes {
		t.Errorf("%d bytes are sent, gateways take %d", c.transfer, work.MaxTransferBytes)
	}
	for more, want := range []bool{true, false} {
		s := &stores{sim: newSim(t, 1)}
		c := newCore(lane, "w", time.Minute, s)
		c.transfer, c.hasStore = 1<<20, true
		x := &slice{item: work.Item{WorkItemID: "x", ReplySubject: "_INBOX.g.x", AcceptsChunks: true,
			AcceptsRef: true}, state: sent, model: c.model("org/a"), call: "1"}
		c.slices["x"] = x
		r := work.Result{Success: true}
		r.Results = []msgp.Raw{msgp.AppendString(nil, strings.Repeat("x", 1<<19))}
		least, err := r.MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 1<<19 + c.transfer - stampRoom - len(least) + more
		r.Results[0] = msgp.AppendString(nil, strings.Repeat("x", n))
		data, err := r.MarshalMsg(nil)
		if err != nil || len(data) != c.transfer-stampRoom+more {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		c.outcome("1", &ipc.Outcome{WorkItemID: "x", Disposition: ipc.PublishAndAck, Result: data})
		kept := c.kept.Bytes()
		if (kept > 0 && len(s.bytes) == 0) != want || kept > int64(c.transfer) {
			t.Errorf("%d more: %d bytes are kept, %v stored", more, kept, s.bytes)
		}
	}
}

// posts notes the messages that are sent with results.
type posts struct {
	*sim
	data [][]byte
}

func (p *posts) request(_, _ string, data []byte) { p.data = append(p.data, data) }
func (p *posts) publish(_ string, data []byte)    { p.data = append(p.data, data) }

// A result that waits is sent to a broker of smaller messages in chunks that fit, or as a refusal
// where the gateway takes no chunks.
func TestResultsFitTheBrokerThatComesNext(t *testing.T) {
	const before, limit = 1 << 20, 64 << 10
	for _, chunks := range []bool{true, false} {
		p := &posts{sim: newSim(t, 1)}
		c := newCore(lane, "w", time.Minute, p)
		c.now = time.Unix(1000, 0)
		c.connect(before)
		x := &slice{item: work.Item{WorkItemID: "x", ReplySubject: "_INBOX.g.x", AcceptsChunks: chunks},
			state: sent, model: c.model("org/a"), call: "1"}
		c.slices["x"] = x
		r := work.Result{Success: true,
			Results: []msgp.Raw{msgp.AppendString(nil, strings.Repeat("x", 300_000))}}
		data, err := r.MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.outcome("1", &ipc.Outcome{WorkItemID: "x", Disposition: ipc.PublishAndAck, Result: data})
		if c.retry(); len(p.data) != 1 || len(p.data[0]) < 300_000 {
			t.Fatalf("%d messages are sent at first", len(p.data))
		}
		c.disconnect()
		c.connect(limit)
		p.data, c.now = nil, c.now.Add(work.ReceiptRetry)
		c.retry()
		got := 0
		for _, data := range p.data {
			if got += len(data); len(data) > limit {
				t.Errorf("in chunks: %v; a message of %d bytes", chunks, len(data))
			}
		}
		var res work.Result
		if chunks && got < 300_000 {
			t.Errorf("%d bytes are sent in chunks", got)
		} else if chunks {
			continue
		}
		if len(p.data) != 1 {
			t.Fatalf("%d messages to a gateway that takes no chunks", len(p.data))
		}
		if _, err := res.UnmarshalMsg(p.data[0]); err != nil || res.Success || c.kept.Len() != 1 ||
			x.entry == nil || c.kept.Bytes() != int64(len(p.data[0])) {
			t.Errorf("%v, success %v, %d are kept with %d bytes", err, res.Success, c.kept.Len(),
				c.kept.Bytes())
		}
	}
}

// fetches notes the slices whose payloads are fetched.
type fetches struct {
	*sim
	n int
}

func (f *fetches) fetch(*slice) { f.n++ }

// A payload counts what is read of it at most, whatever its message says of its size.
func TestPayloadsCountWhatIsRead(t *testing.T) {
	for said, want := range map[uint64]int64{
		0: 2 << 20, 3: 2 << 20, 5 << 20: 6 << 20, maxPayloadBytes + 1: maxPayloadBytes,
		1 << 63: maxPayloadBytes, math.MaxUint64: maxPayloadBytes,
	} {
		f := &fetches{sim: newSim(t, 1)}
		c := newCore(lane, "w", time.Minute, f)
		for id, n := range map[string]uint64{"a": 0, "b": said} {
			c.slices[id] = &slice{item: work.Item{WorkItemID: id, PayloadBytes: n}, state: fetching}
		}
		c.toFetch = []*slice{c.slices["b"], c.slices["a"]}
		c.fetchNext()
		if fetched := 2 - len(c.toFetch); c.payloads != want || f.n != fetched {
			t.Errorf("%d bytes: %d count, want %d; %d payloads are fetched", said, c.payloads, want, f.n)
		}
		for _, s := range c.slices {
			c.fetchedNoMore(s)
		}
		if c.payloads != 0 {
			t.Errorf("%d bytes: %d count when all are gone", said, c.payloads)
		}
	}
}

// A slice that the server still has is dropped once, however long it stays there.
func TestWhatIsDroppedIsCountedOnce(t *testing.T) {
	s := connected(t)
	c := s.c
	x := &slice{item: work.Item{WorkItemID: "x", ReplySubject: "_INBOX.g.x"}, request: "g.x", state: sent,
		model: c.model("org/a"), until: s.now, call: "1"}
	c.slices["x"], c.requests["g.x"], c.marks = x, map[*slice]bool{x: true}, []*slice{x}
	for range 5 {
		c.now = c.now.Add(work.MarkInterval + 1)
		c.visit()
	}
	c.cancelled("sie.cancel.g.x", nil)
	if n, more := s.stats["dropped deadline"], s.stats["dropped cancelled"]; n != 1 || more != 0 {
		t.Errorf("it was dropped %d times by its deadline, %d times by a cancellation", n, more)
	}
}
