package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/health"
	"github.com/sie-engine/sie/sidecar/ipcclient"
	"github.com/sie-engine/sie/sidecar/pull"
)

// Config configures a Worker.
type Config struct {
	Lane         bus.Lane
	ID           string // of this worker, a token of a subject
	NATS         bus.Options
	Streams      bus.Streams
	Socket       string        // of the server
	DrainTimeout time.Duration // from the end of Run's context to its return
	Stall        time.Duration // without progress of the server, after which its work is given up
	Store        Store         // of payloads; nil: none
	// Control is where the models come from; without a URL the server has those of its own files.
	// Its Read and its Bundle are the worker's.
	Control   control.Options
	Log       *slog.Logger
	Metrics   *health.Metrics
	State     *health.State // told what the probes say
	Tracer    trace.Tracer  // nil: nothing is traced
	AccessLog bool          // a line in the log for every slice

	// ClockOffset is added to the clock by which deadlines pass: a host whose clock is wrong.
	ClockOffset time.Duration

	transfer int // most bytes of a result that is sent; 0: work.MaxTransferBytes
}

// Store keeps what does not fit into messages: a payload.Store.
type Store interface {
	// Get returns an object of at most limit bytes.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// Put stores an object, whole or not at all.
	Put(ctx context.Context, key string, data []byte) error
	// Delete removes an object. A missing one is no error.
	Delete(ctx context.Context, key string) error
}

// maxEvents bounds the events that wait; whoever posts one more waits.
const maxEvents = 1024

// Worker is a sidecar.
type Worker struct {
	c      Config
	core   *core
	nc     *nats.Conn
	out    *bus.Outbox // over nc
	js     jetstream.JetStream
	pools  *lease.Store
	demand *nats.Subscription // of the lane
	client *ipcclient.Client
	// control follows sie-config; nil: there is none
	control *control.Follower
	inbox   string // prefix of the subjects of replies to this worker
	events  chan func()
	ended   chan struct{} // closed when nothing reads events any more
	jobs    chan struct{} // bounds the goroutines of fetch and reconcile
	over    bool          // drained was called
	queues  uint64        // that were opened

	// storing holds the keys of results that are being stored, or were and core does not know: as
	// many as maxStoringBytes leaves room for.
	storing map[string]bool

	// closing holds the queues that are to be closed: at most as many as were opened within
	// pull.Expires and pull.Silence together.
	closing []*pull.Queue

	background sync.WaitGroup
	discards   sync.WaitGroup // of stored results: at most as many as slices in hand
	ctx        context.Context
}

// maxJobs bounds the payloads that are fetched, and the consumers that are made, at once.
const maxJobs = 16

// New connects to NATS, in the background, and returns a worker.
func New(c Config) (*Worker, error) {
	err := errors.Join(c.Lane.Validate(), bus.CheckToken("worker id", c.ID), c.Streams.Validate())
	if err != nil {
		return nil, err
	}
	w := &Worker{
		c: c, inbox: bus.SidecarInboxes + "." + nuid.Next(), events: make(chan func(), maxEvents),
		ended: make(chan struct{}), jobs: make(chan struct{}, maxJobs),
		storing: map[string]bool{},
	}
	w.core = newCore(c.Lane, c.ID, c.Stall, w)
	w.core.epoch = nuid.Next()
	w.core.hasStore = c.Store != nil
	if c.transfer > 0 {
		w.core.transfer = c.transfer
	}
	w.core.tracer, w.core.access = c.Tracer, c.AccessLog
	o := c.NATS
	o.Name, o.Inboxes, o.Log = "sie-sidecar "+c.ID, bus.SidecarInboxes, c.Log
	o.Connected = func() { w.post(func() { w.core.connect(int(w.nc.MaxPayload())) }) }
	o.Disconnected = func() { w.post(w.core.disconnect) }
	started := make(chan struct{}) // before it is closed, w.nc is not set
	connected := o.Connected
	o.Connected = func() { <-started; connected() }
	defer close(started)
	if w.nc, err = bus.Connect(o); err != nil {
		return nil, err
	}
	w.out = bus.NewOutbox(w.nc.PublishMsg, w.unsent)
	if err := w.followConfig(); err != nil {
		w.nc.Close()
		return nil, err
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		w.nc.Close()
		return nil, fmt.Errorf("sidecar: %w", err)
	}
	if w.pools, err = lease.NewStore(w.nc, c.Streams); err != nil {
		w.nc.Close()
		return nil, fmt.Errorf("sidecar: %w", err)
	}
	most := 0 // what can be sent
	if c.Store != nil {
		most = ipc.MaxResponse
	}
	w.client = ipcclient.New(ipcclient.Options{
		MaxResponse: most, Path: c.Socket, WorkerID: c.ID, Log: c.Log, Count: c.Metrics.Call,
		Events: ipcclient.Events{
			Up: func(p ipc.PingResponse, same bool) {
				c.Metrics.Count("server_connected", "")
				w.post(func() { w.core.up(&p, same) })
			},
			Pong: func(p ipc.PingResponse) { w.post(func() { w.core.pong(&p) }) },
			Lost: func() { w.post(w.core.lost) },
			Dead: func() { w.post(w.core.died) },
		},
	})
	return w, nil
}

// followConfig makes the follower of sie-config, if there is one.
func (w *Worker) followConfig() (err error) {
	o := w.c.Control
	if o.URL == "" {
		return nil
	}
	o.Bundle, o.Log = w.c.Lane.Bundle, w.c.Log
	o.Read = func(e *control.Export, asked time.Time) {
		w.post(func() { w.core.read(e, asked.Add(w.c.ClockOffset)) })
	}
	w.core.config.follows = true
	w.control, err = control.New(o)
	return err
}

// Control returns what follows sie-config, nil without one.
func (w *Worker) Control() *control.Follower { return w.control }

// post hands an event to the goroutine of Run. It waits while maxEvents are waiting.
func (w *Worker) post(f func()) {
	select {
	case w.events <- f:
	case <-w.ended:
	}
}

// endTimeout bounds how long a drain that took too long waits for the ends of its queues.
const endTimeout = time.Second

// Run works until ctx ends and the drain after it is over, which takes at most DrainTimeout and, if
// that was not enough, endTimeout to give back the rest. All that it started has ended when it
// returns.
func (w *Worker) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.Background())
	defer func() {
		close(w.ended)
		stop()
		w.nc.Close()
		w.background.Wait()
		w.endDiscards()
	}()
	w.ctx = background
	if err := w.subscribe(); err != nil {
		return err
	}
	w.background.Go(func() { w.client.Run(background) })
	w.background.Go(func() { w.follow(background) })
	if w.control != nil {
		w.background.Go(func() { w.control.Run(background) })
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var late, end <-chan time.Time
	begun, stopping := time.Time{}, ctx.Done()
	for !w.over {
		select {
		case f := <-w.events:
			w.core.now = time.Now().Add(w.c.ClockOffset)
			f()
			for n := len(w.events); n > 0; n-- { // one look at the state for all that waits
				(<-w.events)()
			}
		case <-tick.C:
			w.core.scan = true
		case <-stopping:
			w.c.Log.Info("draining", "slices", len(w.core.slices), "limit", w.c.DrainTimeout)
			begun, stopping = time.Now(), nil
			late = time.After(w.c.DrainTimeout)
			w.core.drain()
		case <-late:
			w.c.Log.Warn("the drain took too long; what is not done is given back",
				"slices", len(w.core.slices))
			w.core.abandon()
			end = time.After(endTimeout)
		case <-end:
			w.over = true
		}
		w.core.now = time.Now().Add(w.c.ClockOffset)
		w.core.tick()
		w.endQuiet()
		w.c.State.Set(w.core.responsive() && w.core.server.last.Ready && w.core.connected, w.core.draining)
	}
	w.heartbeat(w.core.heartbeat(true))
	err := w.nc.FlushTimeout(time.Second)
	if err != nil && !w.nc.IsConnected() {
		err = nil // nobody to tell
	}
	w.c.Metrics.Drained(time.Since(begun), late != nil && time.Since(begun) >= w.c.DrainTimeout)
	w.c.Log.Info("drained", "took", time.Since(begun).Round(time.Millisecond))
	return err
}

// subscribe subscribes to all that is not work.
func (w *Worker) subscribe() error {
	handlers := map[string]func(m *nats.Msg){
		bus.HealthPrefix + "*": w.health,
		bus.GatewayPrefix + "*": func(m *nats.Msg) {
			var h bus.GatewayHeartbeat
			if len(m.Data) > maxHeartbeatBytes || json.Unmarshal(m.Data, &h) != nil {
				w.c.Metrics.Count("bad_messages", "gateway_heartbeat")
				return
			}
			w.post(func() {
				w.core.heardOf(strings.TrimPrefix(m.Subject, bus.GatewayPrefix))
				for _, s := range h.Untaken[:min(len(h.Untaken), bus.MaxHeartbeatModels)] {
					w.core.demand(s)
				}
				for subject, n := range h.Backlog { // as many as the bytes of a heartbeat hold
					w.core.backlog(subject, n)
				}
			})
		},
		bus.CancelPrefix + ">": func(m *nats.Msg) {
			w.post(func() { w.core.cancelled(m.Subject, m.Data) })
		},
		w.inbox + ".r.*": func(m *nats.Msg) {
			number := m.Subject[len(w.inbox)+len(".r."):]
			w.post(func() { w.core.receipt(number, m.Data) })
		},
	}
	for subject, f := range handlers {
		if _, err := w.nc.Subscribe(subject, f); err != nil {
			return fmt.Errorf("sidecar: subscribe to %s: %w", subject, err)
		}
	}
	if w.control != nil {
		if _, err := w.control.Listen(w.nc); err != nil {
			return fmt.Errorf("sidecar: subscribe to changes of models: %w", err)
		}
	}
	return w.subscribeDemand()
}

// subscribeDemand subscribes to the demand in the lane that the worker serves.
func (w *Worker) subscribeDemand() (err error) {
	lane := w.core.lane
	subject := "sie.demand." + lane.Pool + "." + lane.Profile + "." + lane.Bundle + ".*"
	w.demand, err = w.nc.Subscribe(subject, func(m *nats.Msg) {
		w.post(func() { w.core.demand(m.Subject) })
	})
	if err != nil {
		return fmt.Errorf("sidecar: subscribe to %s: %w", subject, err)
	}
	return nil
}

func (w *Worker) moved() {
	err := w.demand.Unsubscribe()
	if err = errors.Join(err, w.subscribeDemand()); err != nil {
		w.c.Log.Error("the demand of the lane is not heard", "error", err)
	}
}

// maxHeartbeatBytes bounds a heartbeat that is read.
const maxHeartbeatBytes = 1 << 20

func (w *Worker) health(m *nats.Msg) {
	var h bus.WorkerHeartbeat
	if len(m.Data) > maxHeartbeatBytes || json.Unmarshal(m.Data, &h) != nil ||
		h.Name != strings.TrimPrefix(m.Subject, bus.HealthPrefix) {
		w.c.Metrics.Count("bad_messages", "worker_heartbeat")
		return
	}
	w.post(func() { w.core.heartbeatOf(&h) })
}
