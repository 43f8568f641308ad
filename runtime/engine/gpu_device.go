package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/guard"
)

// gpu is the Go side of a device that is a GPU. One goroutine, the owner, is locked to its thread
// and owns the GPU's context. Every call to C or to the driver runs there, except waits. The owner
// runs jobs from any goroutine that uses the device, and the submit loop of a Runner.
type gpu struct {
	driver driver
	thread int         // of the owner
	jobs   chan func() // unbuffered
	taken  atomic.Bool // the owner runs a loop (Device.own)
	quit   chan struct{}
	gone   sync.WaitGroup
}

// startGPU starts the owner, which makes the driver's context current in its thread.
func startGPU(d driver) (*gpu, error) {
	g := &gpu{driver: d, jobs: make(chan func()), quit: make(chan struct{})}
	entered := make(chan error)
	g.gone.Add(1)
	go g.own(entered)
	if err := <-entered; err != nil {
		g.gone.Wait()
		return nil, err
	}
	return g, nil
}

// own is the owner goroutine. It never unlocks its thread, so the thread ends with it.
func (g *gpu) own(entered chan<- error) {
	defer g.gone.Done()
	runtime.LockOSThread()
	g.thread = unix.Gettid()
	if err := g.driver.enter(); err != nil {
		entered <- err
		return
	}
	entered <- nil
	for {
		select {
		case job := <-g.jobs:
			job()
		case <-g.quit:
			return
		}
	}
}

// call runs f on the owner, which must not be the caller, and returns when f has. A panic of f is
// the caller's, with its own stack: the owner goes on. After stop, f runs on the calling goroutine,
// where it can only find the device closed.
func (g *gpu) call(f func()) {
	done := make(chan error, 1)
	select {
	case g.jobs <- func() { done <- guard.Run(func() error { f(); return nil }) }:
		if err := <-done; err != nil {
			panic(err)
		}
	case <-g.quit:
		f()
	}
}

// stop ends the owner.
func (g *gpu) stop() {
	close(g.quit)
	g.gone.Wait()
}

// onOwnThread reports whether the device's handles may be used on this goroutine, under the lock.
// For a CPU that is any goroutine, for a GPU only its owner.
func (d *Device) onOwnThread() bool { return d.gpu == nil || unix.Gettid() == d.gpu.thread }

// do runs f, under the lock, on a goroutine where the device's handles may be used. Methods on the
// hot path call onOwnThread first, so that they need no closure.
func (d *Device) do(f func()) {
	if d.onOwnThread() {
		d.locked(f)
		return
	}
	d.gpu.call(func() { d.locked(f) })
}

func (d *Device) locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// own runs loop as the owner of the device until loop returns. On a GPU loop runs on the owner
// goroutine, and must meanwhile run the jobs of other goroutines. On a CPU, and on a GPU whose
// owner already runs such a loop, it runs on a new goroutine without jobs.
func (d *Device) own(loop func(jobs <-chan func())) {
	if d.gpu == nil || !d.gpu.taken.CompareAndSwap(false, true) {
		go func() {
			if d.gpu != nil {
				// never unlocked: a GPU may keep state in its thread, so the thread ends with the
				// loop; a CPU has none, and a goroutine with its own thread is a wake-up away
				runtime.LockOSThread()
			}
			loop(nil)
		}()
		return
	}
	d.gpu.jobs <- func() {
		defer d.gpu.taken.Store(false)
		loop(d.gpu.jobs)
	}
}
