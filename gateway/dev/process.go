package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// The roles of processes. Worker names a server and its sidecar together.
const (
	Gateway = "gateway"
	NATS    = "nats"
	Config  = "config"
	Server  = "server"
	Sidecar = "sidecar"
	Worker  = "worker"
)

// spec says how a process is started and when it is ready.
type spec struct {
	role  string
	index int
	argv  []string
	env   []string
	unset []string                    // variables that it does not inherit
	probe func(context.Context) error // nil when the process is ready
}

func name(role string, i int) string { return role + "/" + strconv.Itoa(i) }

// The states of a process.
const (
	running = "running"
	stopped = "stopped" // by SIGSTOP
	waiting = "waiting" // to be started again
	ended   = "ended"   // for good
)

// errDown is returned for a signal to a process that does not run.
var errDown = errors.New("it is not running")

// process keeps one program running. Its goroutine is in run; the other methods may be called
// concurrently.
type process struct {
	spec    spec
	launch  launcher
	restart bool
	out     *logFile
	log     *slog.Logger
	changed func() // is told of every change of pid or state, and returns at once

	quit   chan struct{} // closed by stop: nothing is started any more
	done   chan struct{} // closed when run has returned
	ending chan struct{} // closed when the first child has ended

	mu       sync.Mutex
	child    child         // nil while none runs
	gone     chan struct{} // closed when child has ended
	state    string
	starts   int
	stopping bool
}

func newProcess(
	s spec, launch launcher, restart bool, out *logFile, log *slog.Logger, changed func(),
) *process {
	return &process{
		spec: s, launch: launch, restart: restart, out: out, log: log, changed: changed, state: waiting,
		quit: make(chan struct{}), done: make(chan struct{}), ending: make(chan struct{}),
	}
}

func (p *process) name() string { return name(p.spec.role, p.spec.index) }

// run starts the program, and starts it again after each end, until stop. Without restart it
// returns after the first end.
func (p *process) run() {
	defer close(p.done)
	var b backoff
	for {
		began := time.Now()
		err := p.once()
		up := time.Since(began)
		p.mu.Lock()
		over := p.stopping || !p.restart
		quiet := p.stopping
		if over {
			p.state = ended
		}
		if p.starts <= 1 && !isClosed(p.ending) {
			close(p.ending)
		}
		p.mu.Unlock()
		p.changed()
		if over {
			if !quiet {
				p.log.Warn("a process ended and is not started again",
					"process", p.name(), "status", status(err))
			}
			return
		}
		wait := b.next(up)
		p.log.Warn("a process ended", "process", p.name(), "status", status(err),
			"up", up.Round(time.Millisecond), "again_in", wait)
		select {
		case <-time.After(wait):
		case <-p.quit:
			p.mu.Lock()
			p.state = ended
			p.mu.Unlock()
			return
		}
	}
}

// once starts the program and waits for its end.
func (p *process) once() error {
	c, err := p.launch(&p.spec, p.out)
	p.mu.Lock()
	p.starts++
	if err != nil {
		p.state = waiting
		p.mu.Unlock()
		return err
	}
	gone := make(chan struct{})
	p.child, p.gone, p.state = c, gone, running
	late := p.stopping
	p.mu.Unlock()
	p.changed()
	if late { // stop came between launch and here
		_ = c.Signal(syscall.SIGTERM)
	}
	err = c.Wait()
	p.mu.Lock()
	p.child, p.state = nil, waiting
	p.mu.Unlock()
	close(gone)
	return err
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// status says how a process ended.
func status(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// probeInterval is the time between two looks at whether a process is ready.
const probeInterval = 20 * time.Millisecond

// awaitReady returns when the process is ready for the first time.
func (p *process) awaitReady(ctx context.Context) error { return await(ctx, p.name(), p.spec.probe, p) }

// await returns when a probe is content. It fails when one of the processes that the probe is about
// ends before, with the end of its log, and when ctx ends.
func await(
	ctx context.Context, what string, probe func(context.Context) error, about ...*process,
) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := probe(ctx)
		for _, p := range about {
			if isClosed(p.ending) {
				return fmt.Errorf("%s ended before it was ready; the end of its log (%s):\n%s",
					p.name(), p.out.path, p.out.Tail())
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err := fmt.Errorf("%s is not ready (%w: %w)", what, context.Cause(ctx), err)
			for _, p := range about {
				err = fmt.Errorf("%w; the end of %s:\n%s", err, p.out.path, p.out.Tail())
			}
			return err
		}
	}
}

// stop ends the process: SIGTERM, and SIGKILL when ctx ends. It returns when the process has ended.
// A process that was stopped is continued first, so that it can end in order.
func (p *process) stop(ctx context.Context) {
	p.mu.Lock()
	if !p.stopping {
		p.stopping = true
		close(p.quit)
	}
	c := p.child
	p.mu.Unlock()
	if c != nil {
		_ = errors.Join(c.Signal(syscall.SIGTERM), c.Signal(syscall.SIGCONT))
	}
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	p.log.Warn("a process does not end and is killed", "process", p.name())
	p.mu.Lock()
	c = p.child
	p.mu.Unlock()
	if c != nil {
		_ = c.Signal(syscall.SIGKILL)
	}
	<-p.done
}

// signal sends s. After SIGKILL it returns when the process is gone, or ctx ends.
func (p *process) signal(ctx context.Context, s syscall.Signal) error {
	p.mu.Lock()
	c, gone := p.child, p.gone
	p.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%s: %w", p.name(), errDown)
	}
	if err := c.Signal(s); err != nil {
		return fmt.Errorf("%s: %w", p.name(), err)
	}
	switch s {
	case syscall.SIGKILL:
		select {
		case <-gone:
		case <-ctx.Done():
			return fmt.Errorf("%s was killed and is not gone: %w", p.name(), ctx.Err())
		}
	case syscall.SIGSTOP, syscall.SIGCONT:
		state := map[syscall.Signal]string{syscall.SIGSTOP: stopped, syscall.SIGCONT: running}[s]
		p.mu.Lock()
		if p.child == c {
			p.state = state
		}
		p.mu.Unlock()
	}
	return nil
}

// Status is what a cluster tells about one process.
type Status struct {
	Process string `json:"process"`
	State   string `json:"state"`
	Pid     int    `json:"pid"`    // 0: none
	Starts  int    `json:"starts"` // the first one included
	Log     string `json:"log"`
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Process: p.name(), State: p.state, Starts: p.starts, Log: p.out.path}
	if p.child != nil {
		s.Pid = p.child.Pid()
	}
	return s
}

func (p *process) pid() int { return p.status().Pid }
