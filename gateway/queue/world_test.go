package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// world is a plain model of a broker with workers, which loses what a test tells it to lose. Its
// clock is the test's. What it sends to the gateway goes through deliver, in order.
type world struct {
	queue *Queue
	rand  *rand.Rand // under mu

	mu        sync.Mutex
	up        bool
	created   time.Time // of the stream; zero: there is none
	last      uint64
	stream    []*stored1
	consumer  bool
	limit     int     // messages of the stream
	loss      float64 // of messages to and from the gateway
	dedup     map[string]uint64
	workers   int
	letters   []dlq.Letter
	beats     []bus.GatewayHeartbeat
	cancelled map[string]uint32
	ran       map[string]int // by work item id
	published int
	inbox     chan *nats.Msg
	replies   map[string]chan string // by reply subject
	replyID   int
	pace      time.Duration // of a worker for a slice; 0: random
	killed    map[string]int
	alone     map[string]int // of killed, while alone
	mute      bool           // the broker answers no publish
	looks     int            // how often the stream was asked for
	device    *device        // of each worker; nil: a worker runs slices one after another
}

// stored1 is a message of the world's stream.
type stored1 struct {
	seq  uint64
	id   string
	item *work.Item
	free time.Time // when it may be delivered (again)
}

func newWorld(seed uint64, workers int) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 1)), up: true, limit: 10_000, dedup: map[string]uint64{},
		workers: workers, cancelled: map[string]uint32{}, ran: map[string]int{},
		inbox: make(chan *nats.Msg, 100_000), replies: map[string]chan string{}, killed: map[string]int{},
		alone: map[string]int{}}
}

var errDown = errors.New("no connection")

func (w *world) lostLocked() bool { return !w.up || w.rand.Float64() < w.loss }

// deliver hands messages to the gateway until ctx ends.
func (w *world) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-w.inbox:
			w.queue.receive(m)
		}
	}
}

func (w *world) PublishSoon(m *nats.Msg) { _ = w.Publish(m) }
func (w *world) Flush()                  {}

func (w *world) MaxPayload() int64 { return 1 << 20 }

func (w *world) Publish(m *nats.Msg) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.up {
		return errDown
	}
	switch {
	case strings.HasPrefix(m.Subject, bus.SidecarInboxes+"."):
		if c := w.replies[m.Subject]; c != nil && !w.lostLocked() {
			var r work.Receipt
			if _, err := r.UnmarshalMsg(m.Data); err != nil {
				panic(err)
			}
			select {
			case c <- r.State:
			default:
			}
		}
	case strings.HasPrefix(m.Subject, bus.GatewayPrefix):
		var b bus.GatewayHeartbeat
		if err := json.Unmarshal(m.Data, &b); err != nil {
			panic(err)
		}
		w.beats = append(w.beats, b)
	case strings.HasPrefix(m.Subject, bus.CancelPrefix):
		var c work.Cancel
		if len(m.Data) > 0 {
			if _, err := c.UnmarshalMsg(m.Data); err != nil {
				panic(err)
			}
		}
		parts := strings.Split(m.Subject, ".")
		w.cancelled[parts[2]] = c.From
	default:
		w.storeLocked(m)
	}
	return nil
}

// storeLocked takes a publish of work, and answers it.
func (w *world) storeLocked(m *nats.Msg) {
	if w.lostLocked() {
		return
	}
	w.published++
	answer := &nats.Msg{Subject: m.Reply, Header: nats.Header{}}
	id := m.Header.Get(bus.HeaderMsgID)
	item := &work.Item{}
	if _, err := item.UnmarshalMsg(append([]byte{}, m.Data...)); err != nil {
		panic(err)
	}
	switch seq, seen := w.dedup[id]; {
	case w.created.IsZero():
		answer.Header.Set("Status", "503")
	case seen:
		answer.Data = fmt.Appendf(nil, `{"stream":"S","seq":%d,"duplicate":true}`, seq)
	case len(w.stream) >= w.limit:
		answer.Data = []byte(`{"error":{"code":503,"err_code":10077,"description":"full"}}`)
	default:
		w.last++
		w.dedup[id] = w.last
		w.stream = append(w.stream, &stored1{seq: w.last, id: id, item: item})
		answer.Data = fmt.Appendf(nil, `{"stream":"S","seq":%d}`, w.last)
	}
	if !w.mute && !w.lostLocked() {
		w.inbox <- answer
	}
}

// set changes the world.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Prepare(ctx context.Context, l *line) (streamState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lostLocked() {
		return streamState{}, errDown
	}
	if w.created.IsZero() {
		w.created, w.last, w.stream = time.Now(), 0, nil
		clear(w.dedup)
	}
	w.consumer = true
	return streamState{w.created, w.last}, nil
}

func (w *world) Stream(ctx context.Context, pool string) (streamState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	switch {
	case w.lostLocked():
		return streamState{}, errDown
	case w.created.IsZero():
		return streamState{}, errNoStream
	}
	return streamState{w.created, w.last}, nil
}

func (w *world) Consumer(ctx context.Context, l *line) (c consumerState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lostLocked() {
		return c, errDown
	}
	c.Floor = w.last
	for _, m := range w.stream {
		if !m.free.IsZero() {
			c.Delivered = m.seq
		}
		c.Floor = min(c.Floor, m.seq-1)
		if m.free.IsZero() {
			c.Pending++
		} else {
			c.AckPending++
		}
	}
	return c, nil
}

func (w *world) Remove(ctx context.Context, pool string, seq uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.up {
		return errDown
	}
	w.removeLocked(seq)
	return nil
}

func (w *world) removeLocked(seq uint64) {
	for i, m := range w.stream {
		if m.seq == seq {
			w.stream = append(w.stream[:i:i], w.stream[i+1:]...)
			return
		}
	}
}

func (w *world) Bury(ctx context.Context, l dlq.Letter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letters = append(w.letters, l)
	return nil
}

// publishes returns how many messages have been put into the stream.
func (w *world) publishes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published
}

// asked returns how often the stream was asked for.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// deaths returns how many servers a work item has killed.
func (w *world) deaths(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed[id]
}

// deathsAlone returns how many of them had nothing else in them.
func (w *world) deathsAlone(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alone[id]
}

// left returns how many messages are in the stream.
func (w *world) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stream)
}

// lose drops the stream and everything in it.
func (w *world) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.created, w.last, w.stream, w.consumer = time.Time{}, 0, nil, false
	clear(w.dedup)
}

// connect makes or ends the gateway's connection.
func (w *world) connect(up bool) {
	w.mu.Lock()
	w.up = up
	w.mu.Unlock()
	if up {
		w.queue.Connected()
	} else {
		w.queue.Disconnected()
	}
}

// pull takes the oldest message that may be delivered, or nil.
func (w *world) pull() *stored1 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.up || !w.consumer || w.created.IsZero() {
		return nil
	}
	for _, m := range w.stream {
		if now.After(m.free) {
			m.free = now.Add(15 * time.Second)
			return m
		}
	}
	return nil
}

// send sends a message to the gateway, if it is not lost.
func (w *world) send(to, reply string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lostLocked() {
		w.inbox <- &nats.Msg{Subject: to, Reply: reply, Data: data}
	}
}

// request sends a message until it has a receipt, for at most a time.
func (w *world) request(ctx context.Context, to string, data []byte, most time.Duration) string {
	w.mu.Lock()
	w.replyID++
	reply := fmt.Sprint(bus.SidecarInboxes, ".reply.", w.replyID)
	c := make(chan string, 1)
	w.replies[reply] = c
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.replies, reply)
		w.mu.Unlock()
	}()
	for end := time.Now().Add(most); time.Now().Before(end); {
		w.send(to, reply, data)
		select {
		case <-ctx.Done():
			return ""
		case state := <-c:
			return state
		case <-time.After(work.ReceiptRetry):
		}
	}
	return ""
}

// work is a worker until ctx ends. It runs slices one after another.
func (w *world) work(ctx context.Context, id string) {
	for ctx.Err() == nil {
		w.mu.Lock()
		d := w.device
		w.mu.Unlock()
		if d != nil {
			w.runBatches(ctx, id, d)
			return
		}
		m := w.pull()
		if m == nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		w.run(ctx, id, m)
	}
}

// run runs one slice: with marks, perhaps a server that ends, and a result.
func (w *world) run(ctx context.Context, id string, m *stored1) {
	item := m.item
	mark := func(state string) []byte {
		b, err := (&work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
			WorkerID: id, State: state, Attempt: item.Attempt, Alone: item.Alone}).MarshalMsg(nil)
		if err != nil {
			panic(err)
		}
		return b
	}
	w.send(item.ReplySubject, "", mark(work.Taken))
	w.mu.Lock()
	took := w.pace
	if took == 0 {
		took = time.Duration(w.rand.IntN(400)) * time.Millisecond
		if w.rand.IntN(40) == 0 {
			took += time.Duration(w.rand.IntN(12)) * time.Second
		}
	}
	w.ran[item.WorkItemID]++
	w.mu.Unlock()
	for took > 0 {
		step := min(took, work.MarkInterval)
		select {
		case <-ctx.Done():
			return // it dies: no mark, no result, no acknowledgement
		case <-time.After(step):
		}
		if took -= step; took > 0 {
			w.mu.Lock()
			m.free = time.Now().Add(15 * time.Second) // a progress ack
			w.mu.Unlock()
			w.send(item.ReplySubject, "", mark(work.Running))
		}
	}
	res := &work.Result{WorkItemID: item.WorkItemID, RequestID: item.RequestID, Index: item.Index,
		Attempt: item.Attempt, Success: true, WorkerID: id, Units: &work.Units{}}
	for i, raw := range item.Items {
		text, _, err := msgp.ReadStringBytes(raw)
		if err != nil {
			panic(err)
		}
		if strings.HasPrefix(text, "!poison") {
			w.mu.Lock()
			w.killed[item.WorkItemID]++
			w.alone[item.WorkItemID] += b2i(item.Alone)
			w.mu.Unlock()
			w.request(ctx, item.ReplySubject, mark(work.ServerDied), time.Minute)
			_ = w.Remove(ctx, "", m.seq)
			return
		}
		if strings.HasPrefix(text, "!error") {
			e := errs.Invalidf("items", "Field 'items[%d]': %s", int(item.FirstIndex)+i, text)
			res.Success, res.Results, res.Err = false, nil, e.AppendMsgpack(nil)
			break
		}
		res.Results = append(res.Results, msgp.AppendString(nil, "answer to "+text))
	}
	data, err := res.MarshalMsg(nil)
	if err != nil {
		panic(err)
	}
	if w.request(ctx, item.ReplySubject, data, 20*time.Second) != "" {
		_ = w.Remove(ctx, "", m.seq)
	}
}
