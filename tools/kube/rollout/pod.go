package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sie-engine/sie/tools/kube/stage"
)

// Started is a container that runs.
type Started struct {
	Process *stage.Process
	Base    string // URL that its probes ask below
}

// Launch starts a container of a pod as a process, with the container's own settings of times.
type Launch func(ctx context.Context, pod string, c corev1.Container) (Started, error)

// Pod is a pod that runs. Its methods are safe for concurrent use.
type Pod struct {
	Name string
	Base string // URL of its first container

	spec    corev1.PodSpec
	ready   atomic.Bool
	leaving atomic.Bool // it is being deleted
	gone    chan struct{}
	cancel  context.CancelFunc
	kubelet *Kubelet

	mu         sync.Mutex
	containers []*container
	complete   bool // all of them are there
}

type container struct {
	Started
	spec    corev1.Container
	sidecar bool // an init container that goes on: it ends after the others
	started atomic.Bool
	ready   bool // with the pod's lock
}

// Kubelet runs pods. Its methods are safe for concurrent use.
type Kubelet struct {
	Launch Launch
	// Spread is the time between the deletion of a pod and the moment from which nobody sends it
	// new connections.
	Spread time.Duration
	Log    func(format string, args ...any)
	// Ending, unless nil, is asked when a container gets SIGTERM. Its error is a fault.
	Ending func(pod string, c corev1.Container) error

	ctx  context.Context
	stop context.CancelFunc

	mu     sync.Mutex
	pods   []*Pod
	faults []error
	work   sync.WaitGroup
}

// NewKubelet returns a kubelet without pods.
func NewKubelet(launch Launch, spread time.Duration, log func(string, ...any)) *Kubelet {
	ctx, stop := context.WithCancel(context.Background())
	return &Kubelet{Launch: launch, Spread: spread, Log: log, ctx: ctx, stop: stop}
}

// Close stops asking probes. The processes belong to whoever launched them.
func (k *Kubelet) Close() {
	k.stop()
	k.work.Wait()
}

// Faults returns what should not happen to a pod: a kill at the end of its grace, an exit with a
// status, a liveness probe that failed.
func (k *Kubelet) Faults() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error(nil), k.faults...)
}

func (k *Kubelet) fault(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = append(k.faults, fmt.Errorf(format, args...))
}

// Run starts a pod: sidecars first, each after the one before it has started.
func (k *Kubelet) Run(name string, spec corev1.PodSpec) (*Pod, error) {
	ctx, cancel := context.WithCancel(k.ctx)
	p := &Pod{Name: name, spec: spec, gone: make(chan struct{}), cancel: cancel, kubelet: k}
	add := func(c corev1.Container, sidecar bool) error {
		s, err := k.Launch(ctx, name, c)
		if err != nil {
			return fmt.Errorf("pod %s, container %s: %w", name, c.Name, err)
		}
		x := &container{Started: s, spec: c, sidecar: sidecar}
		p.mu.Lock()
		p.containers = append(p.containers, x)
		p.mu.Unlock()
		k.work.Go(func() { p.watch(ctx, x) })
		for sidecar && !x.started.Load() {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return nil
	}
	for _, c := range spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue // it prepares a volume, which processes here have not
		}
		if err := add(c, true); err != nil {
			cancel()
			return nil, err
		}
	}
	for _, c := range spec.Containers {
		if err := add(c, false); err != nil {
			cancel()
			return nil, err
		}
	}
	p.Base = p.containers[len(p.containers)-len(spec.Containers)].Base
	p.set(nil, true)
	k.mu.Lock()
	k.pods = append(k.pods, p)
	k.mu.Unlock()
	return p, nil
}

// Ready reports whether every container of the pod is.
func (p *Pod) Ready() bool { return p.ready.Load() && !p.leaving.Load() }

// watch asks a container's probes until the pod's context ends.
func (p *Pod) watch(ctx context.Context, c *container) {
	if c.spec.StartupProbe != nil && !p.pass(ctx, c, c.spec.StartupProbe) {
		return
	}
	c.started.Store(true)
	var probes sync.WaitGroup
	defer probes.Wait()
	if c.spec.LivenessProbe != nil {
		probes.Go(func() {
			p.repeat(ctx, c, c.spec.LivenessProbe, func(ok bool) {
				if !ok && !p.leaving.Load() {
					p.kubelet.fault("pod %s: the liveness probe of %s failed", p.Name, c.spec.Name)
				}
			})
		})
	}
	if c.spec.ReadinessProbe == nil {
		p.set(c, true)
		return
	}
	p.repeat(ctx, c, c.spec.ReadinessProbe, func(ok bool) { p.set(c, ok) })
}

// set says whether a container is ready, or with nil that all containers are there.
func (p *Pod) set(c *container, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		p.complete = true
	} else {
		c.ready = ok
	}
	all := p.complete
	for _, x := range p.containers {
		all = all && x.ready
	}
	if p.ready.Swap(all) != all {
		p.kubelet.Log("pod %s: ready is %v", p.Name, all)
	}
}

// pass waits until a startup probe succeeds. More failures than it allows are a fault.
func (p *Pod) pass(ctx context.Context, c *container, probe *corev1.Probe) (ok bool) {
	probing, end := context.WithCancel(ctx)
	defer end()
	p.repeat(probing, c, probe, func(now bool) {
		ok = now
		if !now {
			p.kubelet.fault("pod %s: %s did not start within its startup probe", p.Name, c.spec.Name)
		}
		end()
	})
	return ok
}

// repeat asks a probe at its period and calls set at each change: with true after as many successes
// as the probe asks for, with false after as many failures.
func (p *Pod) repeat(ctx context.Context, c *container, probe *corev1.Probe, set func(bool)) {
	wait := func(seconds int32) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(seconds) * time.Second):
			return true
		}
	}
	if probe.InitialDelaySeconds > 0 && !wait(probe.InitialDelaySeconds) {
		return
	}
	var good, bad int32
	state := 0
	for {
		if err := ask(ctx, c, probe); err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case ctx.Err() != nil:
			return
		case good >= max(probe.SuccessThreshold, 1) && state != 1:
			state = 1
			set(true)
		case bad >= max(probe.FailureThreshold, 1) && state != -1:
			state = -1
			set(false)
		}
		if !wait(max(probe.PeriodSeconds, 1)) {
			return
		}
	}
}

// ask asks a probe once.
func ask(ctx context.Context, c *container, probe *corev1.Probe) error {
	if probe.HTTPGet == nil {
		return errors.New("only probes by HTTP can be asked here")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	return stage.Get(ctx, c.Base+probe.HTTPGet.Path)
}

// Delete ends a pod: its containers' preStop at once, SIGTERM after it, SIGKILL at the end of the
// grace, which counts from now. Sidecars are told when the others have ended. It returns at once.
func (p *Pod) Delete() <-chan struct{} {
	if p.leaving.Swap(true) {
		return p.gone
	}
	grace := int64(30)
	if g := p.spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	p.kubelet.Log("pod %s: deleted, grace %d s", p.Name, grace)
	deadline := time.Now().Add(time.Duration(grace) * time.Second)
	p.kubelet.work.Go(func() {
		begin := time.Now()
		for _, sidecars := range []bool{false, true} {
			var ends sync.WaitGroup
			for _, c := range p.containers {
				if c.sidecar == sidecars {
					ends.Go(func() { p.end(c, deadline) })
				}
			}
			ends.Wait()
		}
		p.cancel()
		p.kubelet.Log("pod %s: gone after %v", p.Name, time.Since(begin).Round(100*time.Millisecond))
		close(p.gone)
	})
	return p.gone
}

// end ends a container.
func (p *Pod) end(c *container, deadline time.Time) {
	if l := c.spec.Lifecycle; l != nil && l.PreStop != nil {
		if err := p.preStop(c, l.PreStop, deadline); err != nil {
			p.kubelet.fault("pod %s: preStop of %s: %w", p.Name, c.spec.Name, err)
		}
	}
	if p.kubelet.Ending != nil {
		if err := p.kubelet.Ending(p.Name, c.spec); err != nil {
			p.kubelet.fault("pod %s: SIGTERM of %s: %w", p.Name, c.spec.Name, err)
		}
	}
	c.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-c.Process.Ended():
		if err := c.Process.Err(); err != nil {
			p.kubelet.fault("pod %s: %s: %w", p.Name, c.spec.Name, err)
		}
	case <-late.C:
		c.Process.Kill()
		p.kubelet.fault("pod %s: %s had not ended within its grace and was killed", p.Name, c.spec.Name)
	}
}

// preStop does what a container asks for before SIGTERM.
func (p *Pod) preStop(c *container, h *corev1.LifecycleHandler, deadline time.Time) error {
	switch {
	case h.Sleep != nil:
		time.Sleep(min(time.Duration(h.Sleep.Seconds)*time.Second, time.Until(deadline)))
		return nil
	case h.HTTPGet != nil:
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+h.HTTPGet.Path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	case h.Exec != nil:
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		argv := slices.Clone(h.Exec.Command)
		if argv[0] != filepath.Base(c.Process.Path()) {
			return fmt.Errorf("its image has no %s", argv[0])
		}
		for i := range argv {
			argv[i] = p.here(argv[i])
		}
		out, err := exec.CommandContext(ctx, c.Process.Path(), argv[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return nil
	default:
		return errors.New("images without a shell can sleep, ask a page or run their program")
	}
}

// here turns the address of a port of the pod into that of the process that stands for the
// container with that port.
func (p *Pod) here(address string) string {
	for _, c := range p.containers {
		for _, port := range c.spec.Ports {
			if address == fmt.Sprintf("http://127.0.0.1:%d", port.ContainerPort) {
				return c.Base
			}
		}
	}
	return address
}
