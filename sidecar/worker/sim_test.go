package worker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/ipcclient"
	"github.com/sie-engine/sie/sidecar/pull"
)

// sim is a plain model of everything around a core: a broker with one stream, a server, gateways.
// It is the core's effects, and says what must never happen as it happens.
type sim struct {
	t    *testing.T
	r    *rand.Rand
	c    *core
	now  time.Time
	seed uint64

	stream  int // which stream it is
	created time.Time
	msgs    map[uint64]*simMsg
	seq     uint64
	pulls   map[*simPulls]bool
	todo    []func() // what happens later, in any order

	conn     bool // the core's connection to the server
	epoch    int
	inside   map[string]string // call by id: slices in the server
	calls    map[string]int    // slices without an outcome, by call
	loaded   []string
	lastCall int

	silent   bool // the gateways
	records  map[string]*record
	parts    map[string]map[uint32][]byte
	drained_ bool
	stats    map[string]int
	config   *simConfig // nil: there is no sie-config
}

type simMsg struct {
	id        string
	token     string
	attempt   uint32
	data      []byte
	seq       uint64
	at        time.Time // from when it may be delivered
	delivered int
}

type record struct {
	item               work.Item
	receipted, dead    bool
	cancelled, expires bool
	silenced, lost     bool
	until              time.Time
	ran                int
	deaths             map[uint32]bool // by attempt, receipted
	results            int
}

type simPulls struct {
	q       *queue
	n       int
	watch   int
	closing bool
}

func (p *simPulls) Waiting() int              { return p.n }
func (p *simPulls) Open() int                 { return min(p.n, 1) }
func (p *simPulls) Watching() bool            { return p.watch > 0 }
func (p *simPulls) Silent(now time.Time) bool { return false }
func (p *simPulls) Reset()                    { p.n, p.watch = 0, 0 }

// rounding is what a deadline in seconds loses.
const rounding = 2 * time.Millisecond

var simModels = []string{"org/a", "org/b", "c.d"}

func subjectOf(token string) string {
	return "sie.work." + lane.Pool + "." + lane.Profile + "." + lane.Bundle + "." + token
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), seed: seed, now: time.Unix(1_700_000_000, 0),
		msgs: map[uint64]*simMsg{}, pulls: map[*simPulls]bool{}, inside: map[string]string{},
		calls: map[string]int{}, records: map[string]*record{}, parts: map[string]map[uint32][]byte{},
		stats: map[string]int{},
	}
	s.created = s.now
	s.c = newCore(lane, "w", 30*time.Second, s)
	s.c.now = s.now
	return s
}

func (s *sim) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d: %s", s.seed, fmt.Sprintf(format, args...))
}

// later has f happen at any later time.
func (s *sim) later(f func()) { s.todo = append(s.todo, f) }

func (s *sim) publishWork(it work.Item) {
	data, err := it.MarshalMsg(nil)
	if err != nil {
		s.failf("%v", err)
	}
	s.seq++
	s.msgs[s.seq] = &simMsg{id: it.WorkItemID, token: bus.Token(it.ModelID), attempt: it.Attempt, data: data,
		seq: s.seq, at: s.now}
	s.later(func() { s.c.demand(lane.DemandSubject(it.ModelID)) })
}

// newWork publishes a new slice.
func (s *sim) newWork() {
	request := "q" + strconv.Itoa(len(s.records))
	id := request + ".0"
	left := 280 * time.Second
	if s.r.IntN(5) == 0 {
		left = time.Duration(1+s.r.IntN(20)) * time.Second
	}
	it := work.Item{
		WorkItemID: id, RequestID: request, Total: 1,
		Operation: []string{work.Encode, work.Score}[s.r.IntN(2)],
		ModelID:   simModels[s.r.IntN(len(simModels))],
		RouterID:  "g", ReplySubject: bus.Inbox("g", request),
		Timestamp: float64(s.now.UnixMilli()) / 1e3, Deadline: float64(s.now.Add(left).UnixMilli()) / 1e3,
		AcceptsChunks: true, Alone: s.r.IntN(15) == 0,
	}
	if s.config != nil {
		it.ModelConfigHash = s.config.gateway.ModelHash(it.ModelID)
		it.ModelDocumentHash = s.config.gateway.DocumentHash(it.ModelID)
		if it.ModelConfigHash == "" {
			return // the gateway answers itself
		}
	}
	for range 1 + s.r.IntN(4) {
		it.Items = append(it.Items, msgp.AppendString(nil, strings.Repeat("t", 1+s.r.IntN(200))))
	}
	s.records[id] = &record{item: it, deaths: map[uint32]bool{}, until: s.now.Add(left)}
	s.publishWork(it)
}

// The effects.

func (s *sim) find(d delivery, what string) *simMsg {
	stream, seq, _ := strings.Cut(d.reply, ".")
	if !s.c.connected {
		return nil
	}
	if stream != strconv.Itoa(s.stream) {
		s.failf("%s of a message of stream %s goes to stream %d", what, stream, s.stream)
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		s.failf("%v", err)
	}
	return s.msgs[n]
}

func (s *sim) ack(d delivery) {
	m := s.find(d, "ack")
	if m == nil {
		return
	}
	r := s.records[m.id]
	ok := r.receipted || r.cancelled || r.silenced || r.deaths[m.attempt] ||
		s.now.After(r.until.Add(work.ClockTolerance-rounding))
	if !ok {
		s.failf("%s was acknowledged and nobody was told: attempt %d, deaths %v\n%s",
			m.id, m.attempt, r.deaths, debug.Stack())
	}
	if s.r.IntN(20) > 0 { // else it is lost on the way
		delete(s.msgs, m.seq)
	}
}

func (s *sim) nak(d delivery, after time.Duration) {
	if m := s.find(d, "nak"); m != nil {
		m.at = s.now.Add(after)
		s.stats["nak"]++
	}
}

func (s *sim) term(d delivery) {
	m := s.find(d, "term")
	if m == nil {
		return
	}
	if r := s.records[m.id]; !r.deaths[m.attempt] && !r.lost {
		s.failf("%s was terminated before the gateway knew", m.id)
	}
	delete(s.msgs, m.seq)
}

func (s *sim) progress(d delivery) {
	if m := s.find(d, "progress"); m != nil {
		m.at = s.now.Add(15 * time.Second)
	}
}

func (s *sim) moved() {}

func (s *sim) openQueue(q *queue) error {
	p := &simPulls{q: q}
	s.pulls[p] = true
	q.pulls = p
	return nil
}

func (s *sim) closeQueue(q *queue) {
	p := q.pulls.(*simPulls)
	p.closing = true
	s.later(func() {
		if s.c.connected && s.r.IntN(2) == 0 {
			s.deliver(p)
		}
		delete(s.pulls, p)
		s.c.closed()
	})
}

func (s *sim) pull(q *queue, batch, maxBytes int) {
	if maxBytes < s.c.maxPayload || batch < 1 {
		s.failf("a pull of %d slices and %d bytes", batch, maxBytes)
	}
	q.pulls.(*simPulls).n += batch
}

func (s *sim) watch(q *queue, threshold int) { q.pulls.(*simPulls).watch = threshold }

func (s *sim) reconcile(q *queue, create bool) {
	s.later(func() { s.c.reconciled(q, s.created, nil) })
}

func (s *sim) list() {
	s.later(func() {
		if !s.c.connected {
			return
		}
		var all []found
		for _, m := range s.msgs {
			all = append(all, found{subjectOf(m.token), true})
		}
		s.c.listedAll(s.created, all, nil)
	})
}

func (s *sim) ensure(model string) {
	epoch := s.epoch
	s.later(func() {
		if epoch != s.epoch || !s.conn {
			return
		}
		if s.config != nil && !s.config.serves(model) {
			e := errs.UnknownModel("Model '" + model + "' not found")
			s.c.ensured(model, &ipc.ReadyResponse{State: ipc.StateFailed, Err: e.AppendMsgpack(nil)}, nil)
			s.stats["unknown"]++
			return
		}
		if !slices.Contains(s.loaded, model) && s.r.IntN(2) == 0 {
			s.c.ensured(model, &ipc.ReadyResponse{State: ipc.StateLoadingInProgress}, nil)
			return
		}
		if !slices.Contains(s.loaded, model) {
			if s.r.IntN(12) == 0 {
				e := errs.LoadFailed(model, errs.LoadFailure{Class: "NETWORK"}, "away", nil)
				s.c.ensured(model, &ipc.ReadyResponse{State: ipc.StateFailed, Err: e.AppendMsgpack(nil)}, nil)
				s.stats["load failed"]++
				return
			}
			s.loaded = append(s.loaded, model)
		}
		s.c.ensured(model, &ipc.ReadyResponse{State: ipc.StateReady, BatchTokens: 50}, nil)
	})
}

func (s *sim) run(r *ipc.RunBatchRequest) (string, error) {
	if !s.conn || s.r.IntN(20) == 0 {
		return "", ipcclient.ErrAway
	}
	s.lastCall++
	call := strconv.Itoa(s.lastCall)
	operation := r.Items[0].Op
	s.inCredit(r)
	s.configured(r)
	for _, i := range r.Items {
		rec := s.records[i.WorkItemID]
		if s.inside[i.WorkItemID] != "" {
			s.failf("%s is in the server twice", i.WorkItemID)
		}
		if rec.receipted && !rec.silenced {
			s.failf("%s runs again after its receipt", i.WorkItemID)
		}
		if i.Op != operation || rec.item.ModelID != r.ModelID {
			s.failf("%s is in a batch of another group", i.WorkItemID)
		}
		if solo := s.c.slices[i.WorkItemID].item.Alone; solo && (len(s.inside) > 0 || len(r.Items) > 1) ||
			s.c.solo != nil {
			s.failf("%s does not run alone", i.WorkItemID)
		}
		if s.now.After(rec.until.Add(work.ClockTolerance + 200*time.Millisecond)) {
			s.failf("%s runs after its deadline", i.WorkItemID)
		}
		left := rec.until.Add(work.ClockTolerance).Sub(s.now)
		want := max(float64(left)/float64(time.Millisecond), 1)
		if d := i.TimeoutMS - want; d > 2 || d < -2 {
			s.failf("%s may run for %v ms, and its deadline is in %v", i.WorkItemID, i.TimeoutMS, left)
		}
		rec.ran++
		if rec.item.Alone {
			s.stats["ran alone"]++
		}
		s.stats["run"]++
	}
	for _, i := range r.Items {
		s.inside[i.WorkItemID] = call
	}
	s.calls[call] = len(r.Items)
	return call, nil
}

// inCredit says when a batch is more than the credit of its model, of which only the last slice may
// be the one that exceeds it. What runs alone needs none.
func (s *sim) inCredit(r *ipc.RunBatchRequest) {
	last := s.c.slices[r.Items[len(r.Items)-1].WorkItemID]
	m := s.c.models[r.ModelID]
	if used := m.inflight + r.TotalCost - last.tokens; used >= m.window && !last.item.Alone {
		s.failf("%s: %d tokens of %d are in the server before the last slice", r.ModelID, used, m.window)
	}
}

func (s *sim) cancel(ids []string)                     {}
func (s *sim) capabilities()                           {}
func (s *sim) pin(models []string)                     { s.failf("nothing is pinned") }
func (s *sim) fetch(x *slice)                          { s.failf("nothing has a payload") }
func (s *sim) store(x *slice, key string, data []byte) { s.failf("nothing is stored") }
func (s *sim) discard(key string)                      { s.failf("nothing is stored") }
func (s *sim) heartbeat(h *bus.WorkerHeartbeat)        { s.stats["heartbeat"]++ }
func (s *sim) drained()                                { s.drained_ = true }
func (s *sim) log(_, text string, _ *slice, _ error)   {}
func (s *sim) count(what, label string)                { s.stats[what+" "+label]++ }

// publish takes marks and chunks.
func (s *sim) publish(subject string, data []byte) {
	kind, _, _ := msgp.ReadStringBytes(msgp.Locate("kind", data))
	if kind == work.KindChunk && s.r.IntN(10) > 0 {
		s.chunk(data)
	}
}

func (s *sim) chunk(data []byte) *work.Chunk {
	var c work.Chunk
	if _, err := c.UnmarshalMsg(data); err != nil {
		s.failf("%v", err)
	}
	key := c.WorkItemID + string(c.Digest)
	if s.parts[key] == nil {
		s.parts[key] = map[uint32][]byte{}
	}
	s.parts[key][c.Index] = c.Payload
	return &c
}

// request takes results and deaths. Its reply comes later, or never.
func (s *sim) request(subject, number string, data []byte) {
	if !s.c.connected {
		s.failf("a request without a connection")
	}
	if len(data) > s.c.maxPayload {
		s.failf("a message of %d bytes", len(data))
	}
	reply := func(r work.Receipt) {
		raw, _ := r.MarshalMsg(nil)
		if s.r.IntN(5) > 0 {
			s.later(func() { s.c.receipt(number, raw) })
		}
	}
	if s.silent {
		s.later(func() { s.c.receipt(number, nil) })
		return
	}
	if s.r.IntN(5) == 0 {
		return // lost
	}
	kind, _, _ := msgp.ReadStringBytes(msgp.Locate("kind", data))
	switch kind {
	case work.KindMark:
		var m work.Mark
		if _, err := m.UnmarshalMsg(data); err != nil || m.State != work.ServerDied {
			s.failf("a request with a mark %+v %v", m, err)
		}
		s.died(&m)
		reply(work.Receipt{State: work.Stored})
		return
	case work.KindChunk:
		c := s.chunk(data)
		var missing []uint32
		data = nil
		for i := range c.Count {
			p, ok := s.parts[c.WorkItemID+string(c.Digest)][i]
			if !ok {
				missing = append(missing, i)
			}
			data = append(data, p...)
		}
		if missing != nil {
			reply(work.Receipt{State: work.Again, Missing: missing})
			return
		}
	}
	var res work.Result
	if rest, err := res.UnmarshalMsg(data); err != nil || len(rest) > 0 {
		s.failf("a result: %v", err)
	}
	r := s.records[res.WorkItemID]
	r.results++
	s.judge(&r.item, &res)
	if res.ErrorCode == "MODEL_LOAD_FAILED" {
		s.stats["load error answered"]++
	}
	state := work.Stored
	if r.receipted {
		state = work.Duplicate
	}
	if r.cancelled {
		state = work.Unknown
	}
	r.receipted = true
	reply(work.Receipt{State: state})
}

// died counts a death as a gateway does, and publishes the next attempt.
func (s *sim) died(m *work.Mark) {
	r := s.records[m.WorkItemID]
	if r.deaths[m.Attempt] || r.receipted || r.cancelled || m.Attempt != r.item.Attempt {
		r.deaths[m.Attempt] = true
		return
	}
	r.deaths[m.Attempt] = true
	if m.Alone != r.item.Alone {
		s.failf("%s died alone: %v", m.WorkItemID, m.Alone)
	}
	if m.Alone && len(r.deaths) > 2 {
		r.dead = true
		return
	}
	r.item.Attempt++
	r.item.Alone, r.item.DiedOn = true, []string{"w"}
	s.publishWork(r.item)
}

// deliver brings messages to a queue, as far as its pulls allow.
func (s *sim) deliver(p *simPulls) {
	for _, seq := range slices.Sorted(maps.Keys(s.msgs)) {
		m := s.msgs[seq]
		if m.token != p.q.token || m.at.After(s.now) {
			continue
		}
		if p.n == 0 {
			if p.watch > 0 {
				p.watch = 0
				if !p.closing {
					s.c.heard(p.q, pull.Backlog)
				}
			}
			return
		}
		p.n--
		m.delivered++
		m.at = s.now.Add(15 * time.Second)
		msg := &nats.Msg{
			Subject: subjectOf(m.token),
			Reply:   fmt.Sprintf("%d.%d", s.stream, m.seq), Data: m.data,
		}
		s.c.arrived(p.q, msg, !p.closing)
		if s.r.IntN(3) == 0 {
			return
		}
	}
}

// finish has the server end a slice.
func (s *sim) finish() {
	if !s.conn || len(s.inside) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(s.inside))
	id := ids[s.r.IntN(len(ids))]
	call := s.inside[id]
	delete(s.inside, id)
	o := ipc.Outcome{WorkItemID: id, Disposition: ipc.PublishAndAck, InputTokens: int64(1 + s.r.IntN(60))}
	res := work.Result{Success: true, WorkItemID: id}
	size := s.r.IntN(300)
	if s.r.IntN(10) == 0 {
		size = 3000 + s.r.IntN(9000) // in chunks
	}
	res.Results = []msgp.Raw{msgp.AppendString(nil, strings.Repeat("v", size))}
	o.Result, _ = res.MarshalMsg(nil)
	switch s.r.IntN(12) {
	case 0:
		o.Disposition, o.Result = ipc.NakRetry, nil
	case 1:
		o.Result = []byte{0xc1}
	}
	if s.config != nil && s.config.refuses[id] {
		o.Disposition, o.Result = ipc.NakRetry, nil
	}
	whole := s.r.IntN(30) == 0 // the call ends without this outcome
	if !whole {
		s.c.outcome(call, &o)
	}
	s.calls[call]--
	if whole || s.calls[call] == 0 {
		for _, x := range ids {
			if s.inside[x] == call {
				delete(s.inside, x)
			}
		}
		s.c.ended(call, nil)
	}
}

// kill ends the server. back says what the core learns.
func (s *sim) kill() {
	s.conn = false
	s.epoch++
	clear(s.inside)
	clear(s.calls)
	s.loaded = nil
	if s.config != nil {
		s.config.server = nil
	}
	s.c.lost()
	s.c.tick()
	s.c.died()
}

func (s *sim) ping() ipc.PingResponse {
	p := ipc.PingResponse{Ready: true, Epoch: strconv.Itoa(s.epoch), LoadedModels: slices.Clone(s.loaded)}
	for _, call := range s.inside {
		p.Running = append(p.Running, ipc.Progress{RequestID: call})
	}
	return p
}
