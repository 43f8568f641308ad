package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/gateway/fair"
	"github.com/sie-engine/sie/internal/bus"
)

// Queue answers requests through the broker. Its methods are safe for concurrent use.
type Queue struct {
	opt     Options
	inbox   string // with the dot after the router
	broker  broker
	metrics *metrics

	ctx  context.Context // of everything that runs in the background
	stop context.CancelFunc
	all  sync.WaitGroup
	kick chan struct{} // has an element when the keeper shall look at once
	look atomic.Bool   // and at everything, not only at what waits to be published

	connected   atomic.Bool
	began       time.Time    // before anything happened; what follows is in nanoseconds since then
	connectedAt atomic.Int64 // not of the wall clock, which may be set while slices have ages
	heard       atomic.Int64 // when the last message came; 0: none did
	draining    atomic.Bool
	drained     chan struct{} // closed by Drain

	workers atomic.Pointer[func(worker string) presence] // nil: nobody knows
	losses  atomic.Pointer[func(lane bus.Lane) bool]     // the same; whether it lost a worker lately
	demand  atomic.Pointer[Demand]                       // that heartbeats tell; nil: none

	deletes chan string   // keys of payloads
	removes chan place    // messages that another attempt has taken the place of
	fetches chan struct{} // has an element for each result that is being fetched

	mu       sync.Mutex // guards the maps
	requests map[string]*request
	lines    map[string]*line // by subject
	pools    map[string]*pool

	keeper keeper // belongs to the keeper's goroutine
}

// New returns a queue that holds every request until Start.
func New(o Options) (*Queue, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	o.setDefaults()
	q := &Queue{
		opt: o, inbox: bus.GatewayInboxes + "." + o.Router + ".", metrics: newMetrics(o.Metrics),
		kick: make(chan struct{}, 1), drained: make(chan struct{}), deletes: make(chan string, maxDeletes),
		removes: make(chan place, maxRemoves),
		fetches: make(chan struct{}, maxFetches), requests: map[string]*request{}, lines: map[string]*line{},
		pools: map[string]*pool{}, broker: away{}, began: time.Now().Add(-1),
	}
	q.ctx, q.stop = context.WithCancel(context.Background())
	q.metrics.observe(q)
	return q, nil
}

// inboxBytes bounds what arrives faster than it is taken.
const inboxBytes = 256 << 20

// Start subscribes the inbox and begins to publish. It is called once, before the first request;
// the connection may be made later. The queue does not close the connection.
func (q *Queue) Start(conn *nats.Conn) error {
	b, err := newJetStream(conn, q.opt.Streams, q.unsent)
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	q.begin(b)
	sub, err := conn.Subscribe(q.inbox+">", q.receive)
	if err == nil {
		err = sub.SetPendingLimits(-1, inboxBytes)
	}
	if err != nil {
		return fmt.Errorf("queue: subscribe the inbox: %w", err)
	}
	if conn.IsConnected() {
		q.Connected()
	}
	return nil
}

// begin starts the goroutines over a broker.
func (q *Queue) begin(b broker) {
	q.broker = b
	q.all.Go(q.keep)
	q.all.Go(q.delete)
	q.all.Go(q.remove)
}

// Connected says that there is a connection to the broker.
func (q *Queue) Connected() {
	if !q.connected.Load() {
		q.connectedAt.Store(int64(time.Since(q.began)))
		q.connected.Store(true)
	}
	q.wakeForAll()
}

// since returns when the connection was made.
func (q *Queue) since() time.Time { return q.began.Add(time.Duration(q.connectedAt.Load())) }

// Disconnected says that the connection to the broker is lost. Requests wait until it is there
// again, or until their time is up.
func (q *Queue) Disconnected() { q.connected.Store(false) }

// Drain makes heartbeats say that this gateway stops. Requests go on.
func (q *Queue) Drain() {
	if !q.draining.Swap(true) {
		close(q.drained)
	}
	q.wakeForAll()
}

// Close ends the goroutines. Call it when no request is pending.
func (q *Queue) Close() {
	q.stop()
	q.all.Wait()
	q.broker.Flush()
}

// wakeForAll has the keeper look at everything that is pending.
func (q *Queue) wakeForAll() {
	q.look.Store(true)
	q.wakeKeeper()
}

// wakeKeeper has the keeper look at what waits to be published.
func (q *Queue) wakeKeeper() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (q *Queue) find(id string) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.requests[id]
}

// line returns the line of a model in a lane, and counts one request more in it.
func (q *Queue) line(lane bus.Lane, model string) *line {
	subject := lane.WorkSubject(model)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[subject]
	if l == nil {
		p := q.pools[lane.Pool]
		if p == nil {
			p = &pool{name: lane.Pool}
			q.pools[lane.Pool] = p
		}
		l = &line{lane: lane, home: lane, model: model, subject: subject,
			demand: lane.DemandSubject(model), pool: p}
		if d := q.demand.Load(); d != nil {
			l.home = (*d).Home(lane)
		}
		l.share.SetRoom(fair.Unlimited)
		if q.opt.Fair {
			l.window.size = firstWindow
			l.share.SetRoom(firstWindow)
		}
		q.lines[subject] = l
	}
	l.mu.Lock()
	l.requests++
	l.mu.Unlock()
	return l
}

// peek returns the line of a model in a lane if it was used, or nil.
func (q *Queue) peek(subject string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines[subject]
}

// release ends a request's use of a line.
func (l *line) release(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
	l.usedAt = now
}

// forget removes lines that have not been used for long, and pools without lines.
func (q *Queue) forget(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	used := make(map[*pool]bool, len(q.pools))
	for subject, l := range q.lines {
		l.mu.Lock()
		idle := l.requests == 0 && !l.preparing && !l.checking && now.Sub(l.usedAt) > lineIdle
		l.mu.Unlock()
		if idle {
			delete(q.lines, subject)
			continue
		}
		used[l.pool] = true
	}
	for name, p := range q.pools {
		if !used[p] {
			delete(q.pools, name)
		}
	}
}

// errAway is the error of everything while Start has not been called.
var errAway = errors.New("there is no connection to the broker yet")

// away is the broker before Start.
type away struct{}

func (away) Publish(*nats.Msg) error { return errAway }
func (away) PublishSoon(*nats.Msg)   {}
func (away) Flush()                  {}
func (away) MaxPayload() int64       { return 0 }
func (away) Prepare(context.Context, *line) (streamState, error) {
	return streamState{}, errAway
}
func (away) Stream(context.Context, string) (streamState, error) { return streamState{}, errAway }
func (away) Consumer(context.Context, *line) (consumerState, error) {
	return consumerState{}, errAway
}
func (away) Remove(context.Context, string, uint64) error { return errAway }
func (away) Bury(context.Context, dlq.Letter) error       { return errAway }
