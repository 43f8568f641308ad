package worker

import (
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/sidecar/pull"
	"github.com/sie-engine/sie/sidecar/rank"
)

// queue is a consumer that is followed: the work of one token of the lane.
type queue struct {
	token, subject string
	primary        string // the model's id, "" until one is known
	pulls          puller // nil: not subscribed
	role           rank.Action
	threshold      int
	demanded       time.Time
	used           time.Time // when a worker last had the model
	absent         bool      // reconcile runs, or waits for retryAt
	retryAt        time.Time
	backoff        time.Duration

	left bool   // the worker has left the queue's lane
	gen  uint64 // then: of its stream
}

// puller is what the core needs of a pull.Queue.
type puller interface {
	Waiting() int
	Open() int
	Watching() bool
	Silent(now time.Time) bool
	Reset()
}

// model is a model's state in the server, and what waits for it.
type model struct {
	id      string
	token   string
	state   modelState
	asking  bool
	askAt   time.Time
	backoff time.Duration
	until   time.Time   // failed: when it may be tried again
	err     *errs.Error // failed: why
	missed  time.Time   // when the server first had no model of this id; zero: it has

	full     int64    // tokens of two device batches
	window   int64    // the credit: full, or less while the server refuses
	inflight int64    // tokens in the server
	waiting  []*slice // queued, in order
	tokens   int64    // of waiting
	solo     int      // slices that wait in core.alone or run alone
	running  int      // slices in the server
	ratio    float64  // bytes of a token, learned
	size     float64  // tokens of a slice, learned; 0: none was seen
}

type modelState int

const (
	cold modelState = iota
	loading
	loaded
	failed
)

// estimate returns the tokens of n bytes, at least 1, and learns the size of slices.
func (m *model) estimate(n int) int64 {
	t := max(int64(float64(n)/m.ratio), 1)
	if m.size == 0 {
		m.size = float64(t)
	}
	m.size += learning * (float64(t) - m.size)
	return t
}

// learn takes the true count of n bytes.
func (m *model) learn(n int, tokens int64) {
	if tokens > 0 {
		seen := min(max(float64(n)/float64(tokens), 0.1), 1000)
		m.ratio += learning * (seen - m.ratio)
	}
}

// refused makes the credit what the server has taken, because it refused more: its own bounds, of
// items or of time, may be narrower. A share of the window stays, from which it grows again.
func (m *model) refused() {
	m.window = max(min(m.window, m.inflight), m.full/16, 1)
}

// answered lets the credit grow again, by a little of what was answered: each refusal at its end
// delays a slice.
func (m *model) answered(tokens int64) {
	m.window = min(m.window+max(tokens/64, 1), m.full)
}

func (m *model) push(s *slice) {
	m.waiting = append(m.waiting, s)
	m.tokens += s.tokens
}

// remove takes a slice out of what waits.
func (m *model) remove(s *slice) {
	if s.state != queued {
		return
	}
	if s.item.Alone {
		m.solo--
		return
	}
	for i, x := range m.waiting {
		if x == s {
			m.waiting = append(m.waiting[:i], m.waiting[i+1:]...)
			m.tokens -= s.tokens
			return
		}
	}
}

// slices returns how many more slices the credit holds, at least 1 when the model is idle.
func (m *model) slices() int {
	free := m.window - m.inflight - m.tokens
	if m.running == 0 && len(m.waiting) == 0 && m.solo == 0 {
		free = max(free, 1)
	}
	switch {
	case free <= 0:
		return 0
	case m.size == 0:
		return sliceBatchFirst
	}
	return min(max(int(float64(free)/m.size), 1), pull.MaxBatch)
}

// model returns the state of a model, made when it is new, or nil above maxModels.
func (c *core) model(id string) *model {
	m := c.models[id]
	if m == nil && len(c.models) < maxModels {
		m = &model{id: id, token: bus.Token(id), ratio: bytesPerToken}
		c.models[id] = m
	}
	return m
}

// follow returns the queue of a token, made when it is new, or nil above maxQueues.
func (c *core) follow(token string) *queue {
	q := c.queues[token]
	if q == nil && len(c.queues) < maxQueues {
		q = &queue{token: token, subject: "sie.work." + c.lane.Pool + "." + c.lane.Profile + "." +
			c.lane.Bundle + "." + token, demanded: c.now.Add(-demandAge)}
		q.primary = c.byToken[token]
		c.queues[token] = q
		c.dirty = true
	}
	return q
}

// demand handles the announcement of work for a subject, sie.demand or sie.work.
func (c *core) demand(subject string) {
	lane, token, err := bus.ParseDemand(subject)
	if err != nil {
		lane, token, err = bus.ParseWork(subject)
	}
	if err != nil || lane != c.lane {
		return
	}
	if q := c.follow(token); q != nil {
		q.demanded, c.dirty = c.now, true
	} else {
		c.do.count("bad_messages", "too_many_models")
	}
}

// known handles the list of models that the server can serve.
func (c *core) known(r *ipc.CapabilitiesResponse) {
	for _, id := range append(r.SupportedModels[:min(len(r.SupportedModels), 65536)], r.LoadedModels...) {
		token := bus.Token(id)
		if _, ok := c.byToken[token]; !ok && len(c.byToken) < 65536 {
			c.byToken[token] = id
		}
		if q := c.queues[token]; q != nil && q.primary == "" {
			q.primary = c.byToken[token]
		}
	}
	c.dirty = true
}

// idOf returns the id of a queue's model. One that the server does not know is the token read back.
func (c *core) idOf(q *queue) string {
	if q.primary != "" {
		return q.primary
	}
	return strings.ReplaceAll(strings.ReplaceAll(q.token, "__", "/"), "_dot_", ".")
}

// decide settles what this worker does about each queue.
func (c *core) decide() {
	if c.responsive() {
		c.present()
	}
	for _, m := range c.models { // of whichever queue, or of none
		if m.state == failed && !m.until.After(c.now) {
			c.become(m, cold)
		}
	}
	c.loadPinned()
	for _, q := range c.queues {
		id := c.idOf(q)
		m := c.model(id)
		if m == nil {
			continue
		}
		own := rank.Own{Ready: c.ready(), Loaded: m.state == loaded, Loading: m.state == loading,
			Failed: m.state == failed, Unsupported: c.leaves(id)}
		role, threshold := c.peers.Decide(id, own)
		if role == rank.Load {
			switch {
			case m.state != loading && c.now.Before(c.discovered):
				role = rank.Nothing
			case c.now.Sub(q.demanded) < demandAge || m.state == loading || m.busy():
				c.want(m)
			default:
				role, threshold = rank.Watch, 1
			}
		}
		if m.state == loaded || m.busy() || c.peers.Other(id, nil) {
			q.used = c.now
		}
		if c.now.Sub(q.demanded) > forgetAge && c.now.Sub(q.used) > forgetAge {
			c.close(q)
			delete(c.queues, q.token)
			continue
		}
		if role != q.role || threshold != q.threshold && role == rank.Watch {
			if q.role != rank.Nothing && role != q.role {
				c.close(q) // what is on its way is given back
			}
			q.role, q.threshold = role, threshold
		}
	}
	for id, m := range c.models { // of work whose model is not its queue's first
		if m.busy() && m.state == cold {
			c.want(m)
		}
		if !m.busy() && m.state == cold && !m.asking && c.queues[m.token] == nil {
			delete(c.models, id)
		}
	}
}

// busy reports whether slices of a model are in hand.
func (m *model) busy() bool { return len(m.waiting) > 0 || m.running > 0 || m.solo > 0 }

// want has a model loaded.
func (c *core) want(m *model) {
	if m.state == cold {
		c.await(m)
		c.do.count("model_loads", "")
	}
}

// await has the server asked for a model until it is loaded.
func (c *core) await(m *model) {
	c.become(m, loading)
	m.askAt, m.backoff = c.now, askFirst
}

// become notes the state of a model, which heartbeats tell.
func (c *core) become(m *model, s modelState) {
	if m.state != s {
		m.state, c.beat.soon = s, true
	}
}

// ask asks the server for the models that are loading.
func (c *core) ask() {
	if !c.responsive() {
		return
	}
	for _, m := range c.models {
		if m.state == loading && !m.asking && !m.askAt.After(c.now) {
			m.asking = true
			c.do.ensure(m.id)
		}
	}
}

// present notes the models that the server has, whoever had them loaded. Such a model makes this
// worker warm, and is pulled for once somebody wants it.
func (c *core) present() {
	has := c.server.last.LoadedModels
	for _, id := range has[:min(len(has), bus.MaxHeartbeatModels)] {
		if m := c.model(id); m != nil && m.state == cold { // its window is not known yet
			c.await(m)
		}
	}
}

// ensured handles the answer to ensure. err is an error of the call.
func (c *core) ensured(id string, r *ipc.ReadyResponse, err error) {
	m := c.models[id]
	if m == nil {
		return
	}
	m.asking = false
	if m.state != loading {
		return // the server changed meanwhile
	}
	c.dirty = true
	later := m.backoff
	m.backoff = min(2*m.backoff, askLast)
	if err == nil && r.State != ipc.StateFailed {
		m.missed = time.Time{}
	}
	switch {
	case err != nil:
		e := errs.As(err)
		if e.Transient() || e.Code == errs.InternalError {
			m.askAt = c.now.Add(later)
			return
		}
		c.fail(m, e)
	case r.State == ipc.StateReady:
		c.become(m, loaded)
		m.full = max(2*r.BatchTokens, 1)
		m.window = m.full
		delete(c.server.missing, id)
	case r.State == ipc.StateFailed:
		e, err := errs.FromMsgpack(r.Err)
		if err != nil {
			e = errs.LoadFailed(id, errs.LoadFailure{Class: "UNKNOWN"}, "the server gave no reason", err)
		}
		if e.Code == errs.ModelNotFound && !c.unknown(m, later) {
			return
		}
		c.fail(m, e)
	case r.State == ipc.StateRetryLater:
		m.askAt = c.now.Add(max(later, time.Duration(r.RetryAfterS*1e9)))
	default:
		m.askAt = c.now.Add(later)
	}
}

// fail handles a load that failed. What waits goes to another worker that may run it, or is
// answered with the error.
func (c *core) fail(m *model, e *errs.Error) {
	c.become(m, failed)
	m.err, m.until = e, c.now.Add(failedFor)
	if e.Load != nil && e.Load.Permanent || !e.Transient() && e.Load == nil {
		m.until = c.now.Add(failedForEver)
	}
	c.do.log("warn", "a model did not load: "+m.id, nil, e)
}

// close ends the pulls of a queue.
func (c *core) close(q *queue) {
	if q.pulls != nil {
		c.closing++
		c.do.closeQueue(q)
		q.pulls = nil
	}
}

// closed is told that no message of a closed queue comes any more.
func (c *core) closed() { c.closing-- }

// followSubject follows the queue of a work subject of the lane.
func (c *core) followSubject(subject string) *queue {
	lane, token, err := bus.ParseWork(subject)
	if err != nil || lane != c.lane {
		return nil
	}
	return c.follow(token)
}
