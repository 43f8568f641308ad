package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// ErrClosed is returned by Run after Close.
var ErrClosed = errors.New("engine: the runner is closed")

// slotsInFlight is the number that sie.h allows. One batch runs while the next is loaded and the
// outputs of the last are copied.
const slotsInFlight = 2

// RunnerStats holds counters since NewRunner, and the memory held now.
type RunnerStats struct {
	Batches    int64
	Sequences  int64
	Tokens     int64
	Failed     int64         // batches that ended in an error
	Busy       time.Duration // sum of the batches' durations; two overlapping ones both count
	ArenaBytes int64
	SlotBytes  int64 // inputs and outputs of the slots
}

// Runner replays programs on a device. At most two batches are in flight. One goroutine, locked to
// its thread, takes batches in the order of Run calls, loads each into a free slot and submits it.
// Two others wait for completion, copy outputs and answer, so that a short batch is answered while
// a long one runs. A GPU runs one batch after another, so there one goroutine waits.
//
// On a GPU the submitting goroutine is the one that owns the GPU's context; a second Runner of the
// same GPU passes every call to it. The runner owns the arena and the slots, and enlarges them when
// a program or batch needs it.
type Runner struct {
	dev  *Device
	work chan *Batch // unbuffered: a batch is taken only when a slot is free for it
	// slots without a batch; the waiters return them, and the owner those whose batch did not start
	free    chan *runSlot
	flying  chan *runSlot // submitted, oldest first; closed by the owner when it stops
	shrinks chan shrinking
	quit    chan struct{} // closed by Close
	stopped chan struct{} // closed by stop when everything is freed
	closing sync.Once
	waiters sync.WaitGroup
	running sync.WaitGroup // batches in flight; the owner adds, and waits before it replaces a GPU's arena

	arena *sharedArena // owner goroutine only
	has   atomic.Pointer[holding]

	batches, sequences, tokens, failed, busyNanos, arenaBytes, slotBytes atomic.Int64
	lost                                                                 atomic.Pointer[Error]
}

type runSlot struct {
	index int
	slot  *Slot // nil until its first batch
	batch *Batch
	arena *sharedArena // of the batch in flight
}

// sharedArena is an arena that closes when neither the runner nor a batch in flight uses it.
type sharedArena struct {
	*Arena
	users atomic.Int32
}

func (a *sharedArena) release() {
	if a.users.Add(-1) == 0 {
		a.Close()
	}
}

// NewRunner starts the goroutines for d. d must stay open until Close returns.
func NewRunner(d *Device) *Runner {
	r := &Runner{dev: d, work: make(chan *Batch), free: make(chan *runSlot, slotsInFlight),
		flying: make(chan *runSlot, slotsInFlight), shrinks: make(chan shrinking),
		quit: make(chan struct{}), stopped: make(chan struct{})}
	r.has.Store(&holding{})
	for i := range slotsInFlight {
		r.free <- &runSlot{index: i}
	}
	waiters := slotsInFlight
	if d.gpu != nil {
		waiters = 1
	}
	d.own(r.submitLoop)
	r.waiters.Add(waiters)
	for range waiters {
		go r.waitLoop()
	}
	go r.stop()
	return r
}

// Run runs one batch and returns when its outputs are in b.Out. ctx bounds the time until a slot
// takes the batch. From then on the batch runs to its end, and Run waits for it. Errors: ctx.Err(),
// ErrClosed, and those of Slot.Load and Slot.Wait. After ErrDeviceLost every batch gets that error.
// Safe for concurrent use, if each call has its own Batch.
func (r *Runner) Run(ctx context.Context, b *Batch) error {
	if err := r.check(b); err != nil {
		return err
	}
	lockorder.AssertNoneHeld("running a batch")
	if b.done == nil {
		b.done = make(chan struct{}, 1)
	}
	b.NonFinite = nil
	select {
	case <-r.quit:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	default:
	}
	select {
	case r.work <- b:
	case <-r.quit:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	<-b.done
	return b.err
}

// check refuses a batch that would make the goroutines panic.
func (r *Runner) check(b *Batch) error {
	if b.Program == nil || b.Program.dev != r.dev {
		return invalid("batch", "its program is missing or of another device")
	}
	for i, n := range b.OutBytes {
		if n < 0 || n > maxOutputBytes || (n > 0 && i >= b.Program.outputs) {
			return invalid("batch",
				fmt.Sprintf("%d bytes of output %d: the program has %d outputs of at most %d bytes",
					n, i, b.Program.outputs, int64(maxOutputBytes)))
		}
	}
	return nil
}

// Stats returns the counters.
func (r *Runner) Stats() RunnerStats {
	return RunnerStats{
		Batches:    r.batches.Load(),
		Sequences:  r.sequences.Load(),
		Tokens:     r.tokens.Load(),
		Failed:     r.failed.Load(),
		Busy:       time.Duration(r.busyNanos.Load()),
		ArenaBytes: r.arenaBytes.Load(),
		SlotBytes:  r.slotBytes.Load(),
	}
}

// Close refuses new batches, waits for those in flight and frees arena and slots. It may be called
// twice.
func (r *Runner) Close() {
	r.closing.Do(func() { close(r.quit) })
	<-r.stopped
}

// submitLoop owns the device's arena and slots, locked to its thread. Between batches it runs the
// calls that other goroutines pass to the device.
func (r *Runner) submitLoop(jobs <-chan func()) {
	defer close(r.flying)
	for {
		s := r.nextSlot(jobs)
		if s == nil {
			return
		}
		if s.batch = r.nextBatch(jobs); s.batch == nil {
			r.free <- s
			return
		}
		b := s.batch
		b.Started = time.Now()
		if b.err = r.start(s); b.err != nil {
			s.batch = nil
			r.finish(b)
			r.free <- s
			continue
		}
		r.flying <- s
	}
}

// nextSlot waits for a free slot; nil when the runner is closed.
func (r *Runner) nextSlot(jobs <-chan func()) *runSlot {
	for {
		select {
		case s := <-r.free:
			return s
		case job := <-jobs:
			job()
		case s := <-r.shrinks:
			r.shrinkArena(s)
		case <-r.quit:
			return nil
		}
	}
}

// nextBatch waits for work; nil when the runner is closed.
func (r *Runner) nextBatch(jobs <-chan func()) *Batch {
	for {
		select {
		case b := <-r.work:
			return b
		case job := <-jobs:
			job()
		case s := <-r.shrinks:
			r.shrinkArena(s)
		case <-r.quit:
			return nil
		}
	}
}

// start makes the arena and the slot large enough, loads the batch and submits it.
func (r *Runner) start(s *runSlot) error {
	if lost := r.lost.Load(); lost != nil {
		return lost
	}
	b := s.batch
	if err := r.fitArena(b.Program.Workspace()); err != nil {
		return err
	}
	if err := r.fitSlot(s, b); err != nil {
		return err
	}
	if err := s.slot.Load(b.Program, b); err != nil {
		return err
	}
	s.slot.wanted = &b.OutBytes
	if err := b.Program.Submit(r.arena.Arena, s.slot); err != nil {
		return err
	}
	s.arena = r.arena
	s.arena.users.Add(1)
	r.arenaBytes.Store(r.arena.Bytes())
	r.running.Add(1)
	return nil
}

// fitArena replaces the arena by one that fits. On a CPU batches in flight keep the old one, so
// that no batch waits for a long text. A GPU may not have room for both, so there the old arena is
// freed first, when nothing runs.
func (r *Runner) fitArena(workspace Workspace) error {
	if r.arena != nil && r.arena.size.Covers(workspace) {
		return nil
	}
	if r.arena != nil {
		workspace = workspace.With(r.arena.size)
		r.dropArena()
	}
	arena, err := r.dev.NewArena(workspace)
	if err != nil {
		return err
	}
	r.arena = &sharedArena{Arena: arena}
	r.arena.users.Add(1)
	r.arenaBytes.Store(arena.Bytes())
	r.hold(func(h *holding) { h.arena = workspace })
	return nil
}

// Shrink gives up the arena if it is larger than batches of footprint f need; the next batch makes
// a new one. It returns when batches in flight are all that still use it, on a GPU when there are
// none. Slots stay as they are.
func (r *Runner) Shrink(f Footprint) {
	lockorder.AssertNoneHeld("shrinking an arena")
	s := shrinking{to: f, done: make(chan struct{})}
	select {
	case r.shrinks <- s:
		<-s.done
	case <-r.quit:
	}
}

// shrinking is a call of Shrink.
type shrinking struct {
	to   Footprint
	done chan struct{}
}

// shrinkArena does the work of Shrink. Owner goroutine only.
func (r *Runner) shrinkArena(s shrinking) {
	if r.arena != nil && !s.to.workspace.Covers(r.arena.size) {
		r.dropArena()
	}
	close(s.done)
}

// dropArena leaves the arena to the batches in flight; a GPU waits for them. Owner goroutine only.
func (r *Runner) dropArena() {
	if r.dev.gpu != nil {
		r.running.Wait()
	}
	r.arena.release()
	r.arena = nil
	r.arenaBytes.Store(0)
	r.hold(func(h *holding) { h.arena = Workspace{} })
}

// fitSlot replaces the slot by one that fits. Capacities only grow, outputs by powers of two, so
// replacements end.
func (r *Runner) fitSlot(s *runSlot, b *Batch) error {
	want := SlotCaps{
		MaxTokens: b.Program.caps.MaxTokens, MaxSeqs: b.Program.caps.MaxSeqs,
		InputBytes: b.Program.inputBytes,
	}
	var have SlotCaps
	if s.slot != nil {
		have = s.slot.caps
	}
	fits := want.MaxTokens <= have.MaxTokens && want.MaxSeqs <= have.MaxSeqs &&
		want.InputBytes <= have.InputBytes && b.Program.outputs <= len(have.OutputBytes)
	for i := range have.OutputBytes {
		fits = fits && b.OutBytes[i] <= have.OutputBytes[i]
	}
	if fits {
		return nil
	}
	for i := range b.Program.outputs {
		want.OutputBytes = append(want.OutputBytes, outputSize(b.OutBytes[i]))
	}
	want = want.with(have)
	if s.slot != nil {
		s.slot.Close()
		s.slot = nil
		r.slotBytes.Add(-slotBytes(have, r.dev.gpu != nil))
		r.hold(func(h *holding) { h.slots[s.index] = SlotCaps{} })
	}
	slot, err := r.dev.NewSlot(want)
	if err != nil {
		return err
	}
	s.slot = slot
	r.slotBytes.Add(slotBytes(want, r.dev.gpu != nil))
	r.hold(func(h *holding) { h.slots[s.index] = want })
	return nil
}

// The bounds of a slot's output. It begins at 64 KB, so that batches of short texts do not enlarge
// it step by step, and ends at 4 GB.
const (
	minOutputBytes = 64 << 10
	maxOutputBytes = 4 << 30
)

// outputSize returns the capacity of a slot's output for n bytes.
func outputSize(n int64) int64 { return 1 << bits.Len64(uint64(max(n, minOutputBytes)-1)) }

// waitLoop answers batches as they are done.
func (r *Runner) waitLoop() {
	runtime.LockOSThread()
	defer r.waiters.Done()
	for s := range r.flying {
		b := s.batch
		b.err = s.slot.Wait()
		if b.err == nil {
			for i, n := range b.OutBytes {
				if n > 0 {
					b.Out[i] = append(b.Out[i][:0], s.slot.UnsafeOutput(i)[:n]...)
				}
			}
			if flags := s.slot.NonFinite(); slices.Contains(flags, 1) {
				b.NonFinite = slices.Clone(flags)
			}
		}
		s.batch = nil
		s.arena.release()
		s.arena = nil
		r.finish(b)
		r.running.Done()
		r.free <- s
	}
}

// stop frees everything once the owner and the waiters have stopped. Then both slots are in free.
func (r *Runner) stop() {
	defer close(r.stopped)
	r.waiters.Wait()
	for range slotsInFlight {
		if s := <-r.free; s.slot != nil {
			s.slot.Close()
		}
	}
	if r.arena != nil {
		r.arena.release()
	}
	r.arenaBytes.Store(0)
	r.slotBytes.Store(0)
}

// finish counts a batch and hands it back. b belongs to its caller afterwards.
func (r *Runner) finish(b *Batch) {
	b.Duration = time.Since(b.Started)
	r.batches.Add(1)
	if b.err == nil {
		r.sequences.Add(int64(len(b.CuSeqlens) - 1))
		r.tokens.Add(int64(len(b.IDs)))
		r.busyNanos.Add(int64(b.Duration))
	} else {
		r.failed.Add(1)
		var e *Error
		if errors.As(b.err, &e) && e.Status == StatusDeviceLost {
			r.lost.Store(e)
		}
	}
	b.done <- struct{}{}
}
