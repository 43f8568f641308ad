package worker

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/rank"
	"github.com/sie-engine/sie/sidecar/results"
)

// core is the state of a sidecar. Its methods are called by one goroutine, which sets now before.
type core struct {
	lane   bus.Lane // that this worker serves now
	home   bus.Lane // that it serves while no client's pool has it
	self   string
	epoch  string // of this process, in marks and heartbeats
	do     effects
	now    time.Time
	tracer trace.Tracer  // nil: nothing is traced
	access bool          // a line in the log for every slice
	stall  time.Duration // without progress of the server, after which a slice shows no life

	maxPayload int // of a message of the broker
	transfer   int // of a result that is sent in chunks; a larger one is stored
	slices     map[string]*slice
	requests   map[string]map[*slice]bool // slices by router and request
	bytes      int64                      // of slices' messages
	payloads   int64                      // bytes of payloads in hand, from before they are fetched
	toFetch    []*slice                   // whose payloads wait for room; at most maxInHand
	storing    int64                      // bytes of results that are being stored
	hasStore   bool                       // of payloads
	fresh      []*slice                   // without a mark, by the time of their first
	marks      []*slice                   // by mark
	queues     map[string]*queue          // by token
	models     map[string]*model          // by id
	byToken    map[string]string          // model ids of the server, by token
	alone      []*slice                   // that wait to run alone
	inServer   int                        // slices that are sent
	solo       *slice                     // that runs alone
	kept       *results.Kept
	sending    []*results.Entry // whose chunks are being sent
	done       *results.Done
	peers      *rank.Table
	tombs      tombs
	gateways   map[string]*gateway // by router; at most maxGateways
	giveBacks  map[string]int      // by work item id; at most maxInHand
	server     server
	connected  bool
	sure       bool      // the generation of the stream is known since the connect
	late       []lateAck // acknowledgements that wait for that; at most maxLate
	gen        uint64    // of the stream
	former     []uint64  // of streams of lanes that this worker has left, whose messages it may settle
	created    time.Time // of the stream
	draining   bool
	closing    int             // subscriptions that are being closed
	dirty      bool            // decisions may have changed
	scan       bool            // the next tick looks at every model
	hot        map[*model]bool // else at these, whose slices changed
	decided    time.Time
	listed     time.Time // when the consumers were last asked for
	beat       beat
	discovered time.Time // until then other workers may not be known, and nothing is loaded
	passed     time.Time // of the last call of passing
	config     config
	pins       pins
}

// server is what is known of the server.
type server struct {
	up      bool // a connection on which it answered
	limbo   bool // the connection was lost, and whether the process died is not known
	last    ipc.PingResponse
	heard   time.Time
	told    bool           // the gateways know that it is silent
	missing map[string]int // pings in which a model that was loaded is absent
}

type lateAck struct {
	d   delivery
	act func(delivery)
}

func newCore(lane bus.Lane, self string, stall time.Duration, do effects) *core {
	return &core{
		lane: lane, home: lane, self: self, do: do, stall: stall, maxPayload: 1 << 20,
		transfer: work.MaxTransferBytes,
		slices:   map[string]*slice{}, requests: map[string]map[*slice]bool{},
		queues: map[string]*queue{}, models: map[string]*model{}, byToken: map[string]string{},
		kept: results.NewKept(1 << 20), done: results.NewDone(results.MaxDone),
		peers: rank.New(lane, self), gateways: map[string]*gateway{}, giveBacks: map[string]int{},
		hot:    map[*model]bool{},
		server: server{missing: map[string]int{}},
	}
}

// responsive reports whether the server answers Pings.
func (c *core) responsive() bool {
	return c.server.up && c.now.Sub(c.server.heard) <= serverSilence
}

// ready reports whether this worker takes work.
func (c *core) ready() bool {
	return c.responsive() && c.server.last.Ready && !c.draining && c.connected && !c.stalled()
}

// stalled reports whether a call in the server makes no progress any more.
func (c *core) stalled() bool {
	for _, p := range c.server.last.Running {
		if time.Duration(p.ProgressMS*1e6) > c.stall {
			return true
		}
	}
	return false
}

// alive reports whether a slice shows life, so that it is marked and not redelivered.
func (c *core) alive(s *slice) bool {
	switch s.state {
	case keeping, fetching, storing:
		return true
	case sent:
		if !c.responsive() {
			return false
		}
		for _, p := range c.server.last.Running {
			if p.RequestID == s.call {
				return time.Duration(p.ProgressMS*1e6) <= c.stall
			}
		}
		return true
	}
	return c.responsive()
}

// full reports whether nothing more may be pulled.
func (c *core) full() bool {
	return len(c.slices) >= maxInHand || max(c.bytes, c.payloads) >= maxInHandBytes || len(c.toFetch) > 0 ||
		c.resultBytes() >= maxKeptBytes
}

// resultBytes returns the bytes of results that are held here.
func (c *core) resultBytes() int64 { return c.kept.Bytes() + c.storing }

// tick does what time and the events before it ask for. It is called after events, and every
// tickEvery with scan.
func (c *core) tick() {
	if c.scan {
		c.passing()
	}
	c.retry()
	if c.dirty || c.now.Sub(c.decided) >= decideEvery ||
		c.decided.Before(c.discovered) && !c.now.Before(c.discovered) {
		c.dirty, c.decided, c.scan = false, c.now, true
		c.decide()
	}
	if c.scan {
		c.give()
		c.tellPins()
		c.release()
		c.ask()
		for _, m := range c.models {
			if m.busy() {
				c.hot[m] = true
			}
		}
	}
	c.fetchNext()
	c.dispatch()
	c.fill()
	c.beats()
	clear(c.hot)
	c.scan = false
	if c.draining && len(c.slices) == 0 && (!c.connected || c.closing == 0 && len(c.late) == 0) {
		c.do.drained()
	}
}

// passing does what the time that passed asks for.
func (c *core) passing() {
	if !c.passed.IsZero() && c.now.Sub(c.passed) > maxPause {
		c.rested()
	}
	c.passed = c.now
	c.visit()
	c.silence()
	if c.connected && c.peers.Expire(c.now) {
		c.dirty = true
	}
	if c.connected && !c.sure && c.now.Sub(c.listed) >= decideEvery {
		c.listed = c.now
		c.do.list()
	}
	if c.server.up && (!c.responsive() || c.stalled()) {
		c.giveBackQueued()
		c.dirty = true
	}
	switch silent := c.serverSilent(); {
	case !silent:
		c.server.told = false
	case !c.server.told && c.connected:
		c.server.told = true
		for _, s := range c.sentSlices() {
			c.sendMark(s, work.ServerSilent)
		}
	}
}

// serverSilent reports whether the server has not answered a Ping for long, and nothing says that
// its process has ended. What is in it may run elsewhere.
func (c *core) serverSilent() bool {
	return !c.server.heard.IsZero() && c.now.Sub(c.server.heard) > serverSilence
}

// rested lets the ages of others begin again, because this process did not run: what they sent
// meanwhile waits to be read.
func (c *core) rested() {
	for _, g := range c.gateways {
		if !g.gone {
			g.seen = c.now
		}
	}
	c.peers.Reconnected(c.now)
	if c.server.up {
		c.server.heard = c.now
	}
}

// visit marks the slices whose time has come, and drops those that are of no use any more.
func (c *core) visit() {
	for len(c.fresh) > 0 && !c.fresh[0].mark.After(c.now) {
		s := c.fresh[0]
		c.fresh = c.fresh[1:]
		if c.slices[s.item.WorkItemID] != s {
			continue
		}
		s.mark = c.now.Add(work.MarkInterval)
		c.marks = append(c.marks, s)
		if s.entry == nil || !s.entry.Died {
			c.sendMark(s, work.Taken)
		}
	}
	for len(c.marks) > 0 && !c.marks[0].mark.After(c.now) {
		s := c.marks[0]
		c.marks = c.marks[1:]
		if c.slices[s.item.WorkItemID] != s {
			continue
		}
		s.mark = c.now.Add(work.MarkInterval)
		c.marks = append(c.marks, s)
		if c.expired(s) {
			c.drop(s, "deadline")
			continue
		}
		if !c.alive(s) {
			if s.state == sent && c.serverSilent() {
				c.sendMark(s, work.ServerSilent) // the first may have been lost
			}
			continue
		}
		for _, d := range s.deliveries {
			if c.sure && d.gen == c.gen || slices.Contains(c.former, d.gen) {
				c.do.progress(d)
			}
		}
		switch {
		case s.state == sent:
			c.sendMark(s, work.Running)
		case s.entry == nil || !s.entry.Died:
			c.sendMark(s, work.Taken)
		}
	}
}

func (c *core) sendMark(s *slice, state string) {
	if s.item.ReplySubject == "" || s.dropped {
		return
	}
	c.do.publish(s.item.ReplySubject, c.markOf(s, state))
}

func (c *core) markOf(s *slice, state string) []byte {
	m := work.Mark{
		Kind: work.KindMark, WorkItemID: s.item.WorkItemID, RequestID: s.item.RequestID, WorkerID: c.self,
		State: state, Attempt: s.item.Attempt, Alone: state == work.ServerDied && s.item.Alone,
		WorkerEpoch: c.epoch,
	}
	data, err := m.MarshalMsg(nil)
	if err != nil {
		panic("worker: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return data
}

// expired reports whether a slice's deadline has passed, tolerance included.
func (c *core) expired(s *slice) bool {
	return c.now.After(s.until)
}

// drop ends a slice that is of no use: its gateway has answered, is gone, or was told. Its messages
// are acknowledged.
func (c *core) drop(s *slice, why string) {
	if s.dropped { // before; the server still has it
		return
	}
	c.do.count("dropped", why)
	c.settle(s, c.do.ack)
	if s.state == sent {
		s.dropped = true
		c.do.cancel([]string{s.item.WorkItemID})
		return // its outcome, or the server's death, gives the credit back
	}
	c.forget(s)
}

// giveBack returns a slice that was not sent to the queue.
func (c *core) giveBack(s *slice, after time.Duration, why string) {
	c.do.count("given_back", why)
	c.settle(s, func(d delivery) { c.do.nak(d, after) })
	c.forget(s)
}

// giveBackQueued returns all slices that wait for the server.
func (c *core) giveBackQueued() {
	for _, s := range c.slices {
		if s.state == queued || s.state == fetching || s.state == held {
			c.giveBack(s, nakServer, "server")
		}
	}
}

// settle acknowledges, in the way of act, all messages of a slice. Until the stream is known to be
// the one they came from, they wait.
func (c *core) settle(s *slice, act func(delivery)) {
	for _, d := range s.deliveries {
		c.settleOne(d, act)
	}
	s.deliveries = nil
}

func (c *core) settleOne(d delivery, act func(delivery)) {
	switch {
	case slices.Contains(c.former, d.gen):
		act(d)
	case d.gen != c.gen: // of a stream that is gone
	case !c.sure:
		if len(c.late) < maxLate {
			c.late = append(c.late, lateAck{d, act})
		}
	default:
		act(d)
	}
}

// forget removes a slice from everything that holds it.
func (c *core) forget(s *slice) {
	id := s.item.WorkItemID
	if c.slices[id] != s {
		return
	}
	c.endSpan(s)
	delete(c.slices, id)
	c.bytes -= int64(len(s.data))
	c.fetchedNoMore(s)
	if s.key != "" && s.state != storing { // else when it is stored
		c.do.discard(s.key)
	}
	if of := c.requests[s.request]; of != nil {
		delete(of, s)
		if len(of) == 0 {
			delete(c.requests, s.request)
		}
	}
	if s.entry != nil {
		c.kept.Remove(s.entry)
	}
	if s.model != nil {
		s.model.remove(s)
	}
	c.alone = without(c.alone, s)
	s.data, s.entry = nil, nil // fresh and marks hold it for a while
}

func without(list []*slice, s *slice) []*slice {
	for i, x := range list {
		if x == s {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
