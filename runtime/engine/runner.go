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
	StateBytes int64 // keys and values of prefixes
}

// Runner replays programs on a device. At most two batches are in flight. One goroutine takes
// batches in the order of Run calls, loads each into a free slot and submits it. Two others wait
// for completion, copy outputs and answer, so that a short batch is answered while a long one runs.
// A GPU runs one batch after another, so there one goroutine waits.
//
// On a CPU they have no threads of their own, and wait parked (ending): so a lone batch is handed
// from goroutine to goroutine on one thread, and Go's monitor sleeps while it runs.
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

	arena  *sharedArena                // owner goroutine only
	states [slotsInFlight]*sharedState // of each slot, on a GPU the first is of all; owner goroutine only
	has    atomic.Pointer[holding]

	batches, sequences, tokens, failed, busyNanos, arenaBytes, slotBytes, stateBytes atomic.Int64
	lost                                                                             atomic.Pointer[Error]
}

type runSlot struct {
	index int
	slot  *Slot // nil until its first batch
	batch *Batch
	arena *sharedArena // of the batch in flight

	prefix *Slot        // for the prefixes of its batch; nil until the first
	state  *sharedState // of the batch in flight; nil: it has no prefixes
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

// sharedState is a state that closes when neither the runner nor a batch in flight uses it.
type sharedState struct {
	*State
	users atomic.Int32
}

func (s *sharedState) release() {
	if s.users.Add(-1) == 0 {
		s.Close()
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
	if p := b.Prefix; p != nil && (p.Program == nil || p.Program.dev != r.dev || !p.Program.writes()) {
		return invalid("batch", "the program of its prefixes is missing, of another device, or writes no state")
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
		StateBytes: r.stateBytes.Load(),
	}
}

// Close refuses new batches, waits for those in flight and frees arena and slots. It may be called
// twice.
func (r *Runner) Close() {
	r.closing.Do(func() { close(r.quit) })
	<-r.stopped
}

// submitLoop owns the device's arena and slots, on a GPU locked to its thread. Between batches it
// runs the calls that other goroutines pass to the device.
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
	if err := r.fit(s, b); err != nil {
		return err
	}
	if err := s.slot.Load(b.Program, b); err != nil {
		return err
	}
	s.slot.wanted = &b.OutBytes
	if err := r.submit(s, b); err != nil {
		return err
	}
	s.arena = r.arena
	s.arena.users.Add(1)
	r.arenaBytes.Store(r.arena.Bytes())
	r.running.Add(1)
	return nil
}

// fit makes everything large enough for a batch and its prefixes.
func (r *Runner) fit(s *runSlot, b *Batch) error {
	workspace := b.Program.Workspace()
	if b.Prefix != nil {
		workspace = workspace.With(b.Prefix.Program.Workspace())
	}
	if err := r.fitArena(workspace); err != nil {
		return err
	}
	change := func(h *holding, c SlotCaps) { h.slots[s.index] = c }
	if err := r.fitSlot(&s.slot, b, change); err != nil || b.Prefix == nil {
		return err
	}
	change = func(h *holding, c SlotCaps) { h.prefixes[s.index] = c }
	if err := r.fitSlot(&s.prefix, b.Prefix, change); err != nil {
		return err
	}
	return r.fitState(s.index, b.Prefix.Program.StateBytes())
}

// submit starts a loaded batch. With prefixes it starts these, and on a GPU, which runs one batch
// after another, the batch behind them; on a CPU complete does that.
func (r *Runner) submit(s *runSlot, b *Batch) error {
	if b.Prefix == nil {
		return b.Program.Submit(r.arena.Arena, s.slot)
	}
	if err := s.prefix.Load(b.Prefix.Program, b.Prefix); err != nil {
		return err
	}
	state := r.states[r.stateOf(s.index)]
	if err := b.Prefix.Program.SubmitWith(r.arena.Arena, s.prefix, state.State); err != nil {
		return err
	}
	if r.dev.gpu != nil {
		if err := b.Program.SubmitWith(r.arena.Arena, s.slot, state.State); err != nil {
			_ = s.prefix.Wait() // what it waits for has ended, and its own error is the same
			return err
		}
	}
	s.state = state
	s.state.users.Add(1)
	return nil
}

// complete waits for a submitted batch.
func (r *Runner) complete(s *runSlot) error {
	if s.state == nil {
		return s.slot.Wait()
	}
	err := s.prefix.Wait()
	if r.dev.gpu == nil {
		if err == nil {
			err = s.batch.Program.SubmitWith(s.arena.Arena, s.slot, s.state.State)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(err, s.slot.Wait())
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

// Shrink gives up the arena and the states that are larger than batches of footprint f need; the
// next batch makes new ones. It returns when batches in flight are all that still use them, on a
// GPU when there are none. Slots stay as they are.
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
	for i, have := range r.states {
		if have != nil && have.Bytes() > s.to.state {
			r.dropState(i)
		}
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
func (r *Runner) fitSlot(s **Slot, b *Batch, change func(*holding, SlotCaps)) error {
	want := SlotCaps{
		MaxTokens: b.Program.caps.slotTokens(), MaxSeqs: b.Program.caps.MaxSeqs,
		InputBytes: b.Program.inputBytes,
	}
	var have SlotCaps
	if *s != nil {
		have = (*s).caps
	}
	fits := want.MaxTokens <= have.MaxTokens && want.MaxSeqs <= have.MaxSeqs &&
		want.InputBytes <= have.InputBytes && b.Program.outputs <= len(have.OutputBytes)
	for i := range have.OutputBytes {
		fits = fits && b.OutBytes[i] <= have.OutputBytes[i]
	}
	if fits {
		return nil
	}
	want.OutputBytes = b.Program.outputCaps(b.OutBytes[:])
	want = want.with(have)
	if *s != nil {
		(*s).Close()
		*s = nil
		r.slotBytes.Add(-slotBytes(have, r.dev.gpu != nil))
		r.hold(func(h *holding) { change(h, SlotCaps{}) })
	}
	slot, err := r.dev.NewSlot(want)
	if err != nil {
		return err
	}
	*s = slot
	r.slotBytes.Add(slotBytes(want, r.dev.gpu != nil))
	r.hold(func(h *holding) { change(h, want) })
	return nil
}

// stateOf returns the number of the state that a slot's batches use. A GPU runs one batch after
// another, so there all use one; and a graph is valid for one.
func (r *Runner) stateOf(slot int) int {
	if r.dev.gpu != nil {
		return 0
	}
	return slot
}

// fitState replaces the slot's state by one that fits.
func (r *Runner) fitState(slot int, bytes int64) error {
	i := r.stateOf(slot)
	if have := r.states[i]; have != nil {
		if have.Bytes() >= bytes {
			return nil
		}
		r.dropState(i)
	}
	state, err := r.dev.NewState(bytes)
	if err != nil {
		return err
	}
	r.states[i] = &sharedState{State: state}
	r.states[i].users.Add(1)
	r.stateBytes.Add(bytes)
	r.hold(func(h *holding) { h.states[i] = bytes })
	return nil
}

// dropState leaves a state to the batch in flight; a GPU waits for it. Owner goroutine only.
func (r *Runner) dropState(i int) {
	if r.dev.gpu != nil {
		r.running.Wait()
	}
	r.stateBytes.Add(-r.states[i].Bytes())
	r.states[i].release()
	r.states[i] = nil
	r.hold(func(h *holding) { h.states[i] = 0 })
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
	if r.dev.gpu != nil {
		runtime.LockOSThread()
	}
	defer r.waiters.Done()
	for s := range r.flying {
		b := s.batch
		b.err = r.complete(s)
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
		if s.state != nil {
			s.state.release()
			s.state = nil
		}
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
		s := <-r.free
		for _, slot := range []*Slot{s.slot, s.prefix} {
			if slot != nil {
				slot.Close()
			}
		}
	}
	if r.arena != nil {
		r.arena.release()
	}
	for _, state := range r.states {
		if state != nil {
			state.release()
		}
	}
	r.arenaBytes.Store(0)
	r.stateBytes.Store(0)
	r.slotBytes.Store(0)
}

// finish counts a batch and hands it back. b belongs to its caller afterwards.
func (r *Runner) finish(b *Batch) {
	b.Duration = time.Since(b.Started)
	r.batches.Add(1)
	if b.err == nil {
		r.sequences.Add(int64(len(b.CuSeqlens) - 1))
		r.tokens.Add(int64(len(b.IDs)))
		if b.Prefix != nil {
			r.tokens.Add(int64(len(b.Prefix.IDs)))
		}
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
