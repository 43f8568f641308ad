package quota

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/tenant"
)

// The times of an Exchange.
const (
	beatEvery = time.Second
	allEvery  = 10 * time.Second
	// between two messages of what has changed: longer than a message takes, so that what one
	// gateway has told has come to all before it tells more
	tellEvery = 20 * time.Millisecond
	silence   = 4 * time.Second
	// gap is the time between two messages of a gateway after which it was not heard for long
	gap = 2500 * time.Millisecond
	// maxPause between two looks: after more this process did not run, and messages wait
	maxPause = 3 * beatEvery
	joinTime = 2 * tellEvery // from the own first message until the others have answered it
)

// The bounds of messages.
const (
	maxUses  = 500     // of one message
	maxBytes = 1 << 20 // of a message that is read
	maxPeers = 256     // gateways that are heard
)

// Message is what a gateway tells, as JSON, on bus.QuotaPrefix + its id.
type Message struct {
	Uses []tenant.Use `json:"uses,omitempty"`
	// Joins asks the others to tell everything: this gateway knows nothing yet.
	Joins bool `json:"joins,omitempty"`
	// Leaves is set in the last message of a gateway.
	Leaves bool `json:"leaves,omitempty"`
}

// Access is what an Exchange needs of a tenant.Access.
type Access interface {
	Share() <-chan struct{}
	Joined()
	SetPeers(n int)
	Fresh() []tenant.Use
	All() []tenant.Use
	Told(uses []tenant.Use)
	Heard(server string, uses []tenant.Use)
	Gone(server string)
	Missed(server string)
}

// Options configures an Exchange.
type Options struct {
	Router  string // this gateway's id
	Access  Access
	Metrics prometheus.Registerer // nil: none
	Log     *slog.Logger
}

// Exchange is a gateway's part in it. Its methods are safe for concurrent use.
type Exchange struct {
	opt     Options
	fresh   <-chan struct{} // has an element when there is something to tell
	wake    chan struct{}   // has an element when everything is to be told
	publish func(*nats.Msg) error

	mu        sync.Mutex
	connected bool
	met       bool // the own first message has come to all
	asks      bool // the next message asks the others to tell everything
	peers     map[string]*peer
	ticked    time.Time
}

// peer is another gateway.
type peer struct {
	at   time.Time // when it was heard last
	seen time.Time // from when on its silence counts
}

// New returns an exchange that knows no other gateway. Requests wait for it from now on, for at
// most a moment each, until Run has met the others.
func New(o Options) *Exchange {
	e := &Exchange{opt: o, fresh: o.Access.Share(), wake: make(chan struct{}, 1), asks: true,
		peers: map[string]*peer{}}
	if o.Metrics != nil {
		o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sie_gateway_quota_peers", Help: "Other gateways with which this one shares quotas.",
		}, func() float64 { return float64(e.count()) }))
	}
	return e
}

// Subscribe takes what the gateways tell. The subscription ends with the connection.
func (e *Exchange) Subscribe(c *nats.Conn) error {
	e.publish = c.PublishMsg
	_, err := c.Subscribe(bus.QuotaPrefix+"*", func(m *nats.Msg) {
		var told Message
		if len(m.Data) <= maxBytes && json.Unmarshal(m.Data, &told) == nil {
			e.heard(strings.TrimPrefix(m.Subject, bus.QuotaPrefix), &told)
		}
	})
	return err
}

// Connected says that there is a connection to the broker. The silence of others begins again.
func (e *Exchange) Connected() {
	e.mu.Lock()
	e.connected = true
	e.restLocked(time.Now())
	e.mu.Unlock()
	e.tellAll()
}

// Disconnected says that the connection is lost.
func (e *Exchange) Disconnected() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.connected = false
}

// restLocked lets nobody have been silent before now.
func (e *Exchange) restLocked(now time.Time) {
	for _, p := range e.peers {
		p.seen = now
	}
	e.ticked = now
}

func (e *Exchange) tellAll() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// heard takes a message of a gateway, this one's own among them.
func (e *Exchange) heard(router string, m *Message) {
	switch {
	case router == e.opt.Router:
		e.opt.Access.Told(m.Uses)
		if m.Joins && e.first() { // the answers of the others are on their way
			time.AfterFunc(joinTime, e.opt.Access.Joined)
		}
		return
	case m.Leaves:
		e.forget(router)
		return
	}
	state := e.note(router, time.Now())
	switch state {
	case tooMany:
		return
	case missed:
		e.opt.Access.Missed(router)
	}
	e.opt.Access.Heard(router, m.Uses)
	if state == joined {
		e.tellCount()
	}
	if state != known || m.Joins {
		e.tellAll()
	}
}

// presence is what this gateway knew of another when it heard of it.
type presence int

const (
	known   presence = iota
	joined           // nothing
	missed           // too little: it was not heard for long
	tooMany          // nothing, and there is no room for more
)

// first reports whether this gateway's own message has come to all for the first time.
func (e *Exchange) first() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.met
	e.met = true
	return !was
}

// note notes that a gateway was heard. Unless it was known, everything is asked of it.
func (e *Exchange) note(router string, now time.Time) (state presence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[router]
	switch {
	case p == nil && len(e.peers) >= maxPeers:
		return tooMany
	case p == nil:
		p, state = &peer{}, joined
		e.peers[router] = p
	case now.Sub(p.at) > gap:
		state = missed
	}
	p.at, p.seen = now, now
	e.asks = e.asks || state != known
	return state
}

func (e *Exchange) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.peers)
}

// forget drops a gateway that has ended.
func (e *Exchange) forget(router string) {
	e.mu.Lock()
	delete(e.peers, router)
	e.mu.Unlock()
	e.opt.Access.Gone(router)
	e.tellCount()
}

// tellCount tells Access of how many others there are. It holds the lock meanwhile: of two that
// join and go at once, what was counted last is told last.
func (e *Exchange) tellCount() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opt.Access.SetPeers(len(e.peers))
}

// Run tells the others until ctx ends, and then that this gateway has ended.
func (e *Exchange) Run(ctx context.Context) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	var allAt time.Time
	for {
		var uses []tenant.Use
		select {
		case <-ctx.Done():
			e.tell(&Message{Leaves: true})
			return
		case <-e.wake:
			allAt = time.Time{}
		case <-e.fresh:
			uses = e.opt.Access.Fresh()
		case now := <-beat.C:
			for _, router := range e.silent(now) {
				e.opt.Log.Warn("a gateway that shared the quotas is silent", "router", router)
				e.forget(router)
			}
		}
		connected, asks := e.begin()
		if !connected {
			continue // everything is told when there is a connection
		}
		if now := time.Now(); asks || now.Sub(allAt) >= allEvery {
			uses, allAt = e.opt.Access.All(), now
		}
		for first := true; first || len(uses) > 0; first = false {
			n := min(len(uses), maxUses)
			e.tell(&Message{Uses: uses[:n], Joins: asks && first})
			uses = uses[n:]
		}
		select {
		case <-time.After(tellEvery):
		case <-ctx.Done():
		}
	}
}

// begin reports whether there is a connection, and whether the message that is told now asks the
// others to tell everything.
func (e *Exchange) begin() (connected, asks bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.connected {
		return false, false
	}
	asks = e.asks || !e.met
	e.asks = false
	return true, asks
}

// silent returns the gateways that were not heard for long.
func (e *Exchange) silent(now time.Time) (gone []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.ticked) > maxPause {
		e.restLocked(now)
	}
	e.ticked = now
	for router, p := range e.peers {
		if e.connected && now.Sub(p.seen) > silence {
			gone = append(gone, router)
		}
	}
	return gone
}

// tell publishes a message. What is lost is told again with everything.
func (e *Exchange) tell(m *Message) {
	data, err := json.Marshal(m)
	if err != nil {
		panic("quota: internal error: " + err.Error()) // numbers and names always have a form
	}
	if err := e.publish(&nats.Msg{Subject: bus.QuotaPrefix + e.opt.Router, Data: data}); err != nil {
		e.opt.Log.Debug("the use of quotas was not told", "error", err)
	}
}
