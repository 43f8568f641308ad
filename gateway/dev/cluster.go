package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/gateway/scale"
	"github.com/sie-engine/sie/internal/bus"
)

const (
	// startTime bounds the start of one process until it is ready.
	startTime = 30 * time.Second
	// drainTime bounds the end of one kind of processes; then they are killed. It is above the
	// processes' own 25 s.
	drainTime = 28 * time.Second
)

// worker is a server and its sidecar.
type worker struct {
	index           int
	lane            bus.Lane
	server, sidecar *process
}

// Cluster is a cluster on this machine. Run is called once, on a cluster that New returned.
type Cluster struct {
	o       Options
	objects []*scale.Object // with Autoscale
	lock    *os.File
	users   *broker.Users
	launch  launcher
	keeper  *keeper
	turn    chan struct{}   // holds one while nobody scales
	now     context.Context // when it ends, what still runs is killed
	adding  sync.Mutex      // a worker of the autoscaler; taken before mu

	mu       sync.Mutex // guards what follows; held for no I/O
	nats     []*process
	config   *process
	gateways []*process
	workers  []*worker // by index
}

// New checks the options and takes the state directory. It starts nothing. Close gives the
// directory back; Run does so too.
func New(o Options) (*Cluster, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var objects []*scale.Object
	if o.Autoscale {
		var err error
		if objects, err = o.objects(); err != nil {
			return nil, err
		}
	}
	held, err := lock(o.StateDir)
	if err != nil {
		return nil, err
	}
	if o.Port == 0 {
		if err := o.findPorts(); err != nil {
			return nil, errors.Join(err, held.Close())
		}
	}
	c := &Cluster{o: o, objects: objects, lock: held, users: &broker.Users{}, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	c.keeper = newKeeper(o.path(stateFile), c.State, o.Log)
	err = errors.Join(o.checkPorts(), o.prepare())
	if err == nil && o.Auth {
		c.users, err = broker.ReadUsers(o.usersFile())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close removes what does not outlive the cluster, and gives the state directory back.
func (c *Cluster) Close() error {
	return errors.Join(c.o.clean(), os.Remove(c.lock.Name()), c.lock.Close())
}

// Run starts the cluster, keeps it running until ctx ends, drains it and gives the state directory
// back. When now ends, what is left is killed at once. It returns an error when a process does not
// become ready, or when what a process left cannot be removed.
func (c *Cluster) Run(ctx, now context.Context) (err error) {
	began := time.Now()
	s := newSpawner()
	c.launch, c.now = s.launch, now
	defer func() { err = errors.Join(err, c.Close()) }()
	defer s.close()
	keeping := false
	defer func() {
		if keeping {
			c.keeper.close()
		}
	}()
	defer c.drain(now)
	if err := c.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to end while it started
		}
		return err
	}
	control, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer control.close()
	keeping = true
	go c.keeper.run() // from here on there is a cluster.json
	c.keeper.flush()
	c.tell(time.Since(began))
	if c.o.Autoscale {
		c.autoscale(ctx, c.objects)
	}
	<-ctx.Done()
	fmt.Fprintln(c.o.Out, "\ndraining: gateways first, then sidecars, servers, sie-config and NATS")
	return nil
}

// add makes a process that begins at once.
func (c *Cluster) add(s spec) (*process, error) {
	out, err := openLog(c.o.path("log", fmt.Sprintf("%s-%d.log", s.role, s.index)), maxLog)
	if err != nil {
		return nil, err
	}
	p := newProcess(s, c.launch, c.o.Restart, out, c.o.Log, c.keeper.changed)
	go func() {
		p.run()
		_ = out.Close()
	}()
	return p, nil
}

// ready waits for processes, which start side by side, and tells of them.
func (c *Cluster) ready(ctx context.Context, what string, all ...*process) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%v have passed", startTime))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range all {
		g.Go(func() error { return p.awaitReady(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(c.o.Out, "  %-9s ready in %4d ms\n", what, time.Since(began).Milliseconds())
	return nil
}

// start starts everything, in this order: NATS and the servers, which need nothing; sie-config,
// which needs NATS; sidecars and gateways, which need both. It returns when all are ready.
func (c *Cluster) start(ctx context.Context) error {
	fmt.Fprintf(c.o.Out, "starting: NATS %d, sie-config 1, gateways %d, workers %d; logs in %s\n",
		c.o.nodes(), c.o.Gateways, c.o.first(), c.o.path("log"))
	for i := range c.o.nodes() {
		p, err := c.add(c.o.natsSpec(i))
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.nats = append(c.nats, p)
		c.mu.Unlock()
	}
	var servers []*process
	for i := range c.o.first() {
		w, err := c.addServer(i, c.o.Lanes[i%len(c.o.Lanes)])
		if err != nil {
			return err
		}
		servers = append(servers, w.server)
	}
	if err := c.ready(ctx, "NATS", c.nats...); err != nil {
		return err
	}
	if err := c.leader(ctx); err != nil {
		return err
	}
	if err := c.o.documents(ctx); err != nil {
		return err
	}
	config, err := c.add(c.o.configSpec(c.users))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.config = config
	c.mu.Unlock()
	if err := c.ready(ctx, "config", config); err != nil {
		return err
	}
	if err := c.ready(ctx, "servers", servers...); err != nil {
		return err
	}
	for i := range c.o.Gateways {
		s, err := c.o.gatewaySpec(i, c.users)
		if err != nil {
			return err
		}
		p, err := c.add(s)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.gateways = append(c.gateways, p)
		c.mu.Unlock()
	}
	if err := c.ready(ctx, "gateways", c.gateways...); err != nil {
		return err
	}
	var sidecars []*process
	for _, w := range c.snapshot() {
		if err := c.addSidecar(w); err != nil {
			return err
		}
		sidecars = append(sidecars, w.sidecar)
	}
	if err := c.ready(ctx, "sidecars", sidecars...); err != nil {
		return err
	}
	return c.known(ctx)
}

// leader waits until JetStream answers, which takes the three servers of a cluster an election.
func (c *Cluster) leader(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%v have passed", startTime))
	defer cancel()
	access := c.o.access(broker.GatewayUser, c.users.Gateway)
	return await(ctx, bus.Redacted(c.o.natsURL()), jetStream(c.o.natsURL(), access), c.nats...)
}

// known waits until every gateway has heard of every worker. Gateways that demand a certificate
// tell only those who have one.
func (c *Cluster) known(ctx context.Context) error {
	if os.Getenv("SIE_TLS_CLIENT_CA") != "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%v have passed", startTime))
	defer cancel()
	for i, p := range c.all(Gateway) {
		probe := knows(c.o.gatewayURL(i), c.o.first())
		if err := await(ctx, p.name()+", of its workers,", probe, p); err != nil {
			return err
		}
	}
	return nil
}

// addServer starts the server of worker i, which serves a lane.
func (c *Cluster) addServer(i int, l bus.Lane) (*worker, error) {
	w := &worker{index: i, lane: l}
	if err := os.MkdirAll(c.o.path("run", fmt.Sprintf("w%d", i)), 0o700); err != nil {
		return nil, err
	}
	p, err := c.add(c.o.serverSpec(i, w.lane))
	if err != nil {
		return nil, err
	}
	w.server = p
	c.mu.Lock()
	c.workers = append(c.workers, w)
	slices.SortFunc(c.workers, func(a, b *worker) int { return a.index - b.index })
	c.mu.Unlock()
	return w, nil
}

// addSidecar starts the sidecar of a worker whose server is ready.
func (c *Cluster) addSidecar(w *worker) error {
	p, err := c.add(c.o.sidecarSpec(w.index, w.lane, c.users))
	if err != nil {
		return err
	}
	c.mu.Lock()
	w.sidecar = p
	c.mu.Unlock()
	return nil
}

// snapshot returns the workers of now.
func (c *Cluster) snapshot() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.workers)
}

// all returns the processes of a role, Worker meaning servers and sidecars.
func (c *Cluster) all(role string) (some []*process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch role {
	case NATS:
		return slices.Clone(c.nats)
	case Gateway:
		return slices.Clone(c.gateways)
	case Config:
		if c.config != nil {
			some = append(some, c.config)
		}
		return some
	}
	for _, w := range c.workers {
		if w.sidecar != nil && role != Server {
			some = append(some, w.sidecar)
		}
		if role != Sidecar {
			some = append(some, w.server)
		}
	}
	return some
}

// drain ends all processes, each kind after those that need it. When now ends they are killed.
func (c *Cluster) drain(now context.Context) {
	for _, role := range []string{Gateway, Sidecar, Server, Config, NATS} {
		end(now, c.all(role)...)
	}
}

// end ends processes side by side, in order for at most drainTime.
func end(ctx context.Context, all ...*process) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var g sync.WaitGroup
	for _, p := range all {
		g.Go(func() { p.stop(ctx) })
	}
	g.Wait()
}

// State returns what cluster.json says.
func (c *Cluster) State() State {
	s := State{Gateways: []GatewayState{}, Workers: []WorkerState{}}
	for i, p := range c.all(Gateway) {
		s.Gateways = append(s.Gateways, GatewayState{URL: c.o.gatewayURL(i), MetricsURL: c.o.metricsURL(i),
			Pid: p.pid()})
	}
	s.NATS = NATSState{URL: c.o.natsURL()}
	for _, p := range c.all(NATS)[:min(1, len(c.all(NATS)))] {
		s.NATS.Pid = p.pid()
	}
	s.Config = ConfigState{URL: c.o.configURL()}
	for _, p := range c.all(Config) {
		s.Config.Pid = p.pid()
	}
	for _, w := range c.snapshot() {
		x := WorkerState{
			ID: workerID(w.index), Pool: w.lane.Pool, Profile: w.lane.Profile, Bundle: w.lane.Bundle,
			ServerPid: w.server.pid(), Socket: c.o.socket(w.index),
			ProbeURL: c.o.sidecarURL(w.index, ""), MetricsURL: c.o.sidecarURL(w.index, "/metrics"),
		}
		c.mu.Lock()
		sidecar := w.sidecar
		c.mu.Unlock()
		if sidecar != nil {
			x.SidecarPid = sidecar.pid()
		}
		s.Workers = append(s.Workers, x)
	}
	return s
}
