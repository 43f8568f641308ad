package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// gpu is the Go half of a device that is a card. One goroutine, locked to its thread, owns the
// card's context: every call of C and of the driver runs there, but waits. It takes jobs from
// whoever uses the device, and whole batches when a Runner has moved in.
type gpu struct {
	driver driver
	thread int         // of the owner
	jobs   chan func() // unbuffered
	taken  atomic.Bool // a loop has moved in
	quit   chan struct{}
	gone   sync.WaitGroup
}

// startGPU starts the owner, which makes the driver's context its own.
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

// own is the owner goroutine. Its thread ends with it, since it is never unlocked.
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

// call runs f on the owner, which is not the caller, and returns when it has. After stop, f runs
// where it is, and can only find the device closed.
func (g *gpu) call(f func()) {
	done := make(chan struct{})
	select {
	case g.jobs <- func() { defer close(done); f() }:
		<-done
	case <-g.quit:
		f()
	}
}

// stop ends the owner.
func (g *gpu) stop() {
	close(g.quit)
	g.gone.Wait()
}

// here says that the device's handles may be used on this goroutine, under the lock: always, but
// for a card on its own alone.
func (d *Device) here() bool { return d.gpu == nil || unix.Gettid() == d.gpu.thread }

// do runs f where the device's handles may be used, under the lock. Methods on a batch's way ask
// here first, and need no closure.
func (d *Device) do(f func()) {
	if d.here() {
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

// own lets loop be the device's owner until it returns: on a card, the card's own goroutine, which
// meanwhile leaves others' jobs to loop. On a CPU, and on a card that has such a loop already, it
// is a new goroutine, with no jobs to do.
func (d *Device) own(loop func(jobs <-chan func())) {
	if d.gpu == nil || !d.gpu.taken.CompareAndSwap(false, true) {
		go func() {
			runtime.LockOSThread() // not unlocked: a device may keep state in its thread, and the thread ends with the loop
			loop(nil)
		}()
		return
	}
	d.gpu.jobs <- func() {
		defer d.gpu.taken.Store(false)
		loop(d.gpu.jobs)
	}
}
