package engine

import "slices"

// Footprint is the memory that batches of some programs need in a Runner, apart from weights. The
// Runner enlarges its parts one by one, so they are counted one by one: two programs together need
// the larger of each part, which may be more than either needs alone. The zero value is the
// footprint of no program.
type Footprint struct {
	workspace Workspace
	slot      SlotCaps // of each of the slots
	prefix    SlotCaps // of each of the slots for prefixes
	state     int64    // bytes of each of the states
	lanes     int      // of the device's arenas
	onGPU     bool     // a GPU: outputs lie in the arena, too
}

// Footprint returns the most that a Runner needs for batches of p. outBytes bounds the bytes of
// each output in order; outputs beyond its end count as 0.
func (p *Program) Footprint(outBytes ...int64) Footprint {
	c := SlotCaps{MaxTokens: p.caps.slotTokens(), MaxSeqs: p.caps.MaxSeqs, InputBytes: p.inputBytes,
		OutputBytes: p.outputCaps(outBytes)}
	f := Footprint{workspace: p.workspace, lanes: p.dev.lanes, onGPU: p.dev.gpu != nil}
	if p.writes() {
		f.prefix, f.state = c, p.stateBytes
	} else {
		f.slot = c
	}
	return f
}

// outputCaps returns the capacities of a slot's outputs for a batch with so many bytes of each. A
// slot has at least one.
func (p *Program) outputCaps(outBytes []int64) (caps []int64) {
	for i := range max(1, p.outputs) {
		var n int64
		if i < len(outBytes) {
			n = outBytes[i]
		}
		if i < p.outputs {
			n = outputSize(n)
		}
		caps = append(caps, n)
	}
	return caps
}

// states returns the number of states that a Runner has.
func (f Footprint) states() int64 {
	if f.onGPU {
		return 1
	}
	return slotsInFlight
}

// With returns the smallest footprint that covers both. Both must be of devices of one kind.
func (f Footprint) With(g Footprint) Footprint {
	return Footprint{
		workspace: f.workspace.With(g.workspace),
		slot:      f.slot.with(g.slot),
		prefix:    f.prefix.with(g.prefix),
		state:     max(f.state, g.state),
		lanes:     max(f.lanes, g.lanes),
		onGPU:     f.onGPU || g.onGPU,
	}
}

// Bytes returns what a Runner that has no arena or slots yet allocates for the footprint; slots has
// the states of prefixes, too. A GPU's outputs pass through the arena and are counted there, too.
func (f Footprint) Bytes() (arena, slots int64) {
	arena = f.workspace.Bytes(f.lanes)
	if f.onGPU {
		for _, n := range f.slot.OutputBytes {
			arena += n
		}
	}
	slots = slotsInFlight * (slotBytes(f.slot, f.onGPU) + slotBytes(f.prefix, f.onGPU))
	return arena, slots + f.states()*f.state
}

// with returns the smallest bounds that cover both.
func (c SlotCaps) with(d SlotCaps) SlotCaps {
	out := SlotCaps{MaxTokens: max(c.MaxTokens, d.MaxTokens), MaxSeqs: max(c.MaxSeqs, d.MaxSeqs),
		InputBytes: max(c.InputBytes, d.InputBytes), OutputBytes: slices.Clone(c.OutputBytes)}
	for i, n := range d.OutputBytes {
		if i < len(out.OutputBytes) {
			out.OutputBytes[i] = max(out.OutputBytes[i], n)
		} else {
			out.OutputBytes = append(out.OutputBytes, n)
		}
	}
	return out
}

// slotBytes returns the memory of a slot.
func slotBytes(c SlotCaps, gpu bool) int64 {
	n := c.InputBytes // in the layout of C
	if gpu {          // the flags, which are kept beside the outputs
		n += flagBytes * c.MaxSeqs
	} else { // for each sequence: its own slab, its places in the order and its flag (csrc/slot.cc)
		n += 640 * c.MaxSeqs
	}
	for _, out := range c.OutputBytes {
		n += out
	}
	return n
}

// holding describes the arena and slots that a Runner has. It is immutable; the owner replaces it.
type holding struct {
	arena           Workspace
	slots, prefixes [slotsInFlight]SlotCaps
	states          [slotsInFlight]int64
}

// Growth returns the bytes that the Runner allocates, beyond what it has, until batches of
// footprint f fit. stays is kept. passing is the size of the present arena where that must be
// replaced: on a CPU it exists beside the new one until the batch that runs in it has ended.
func (r *Runner) Growth(f Footprint) (stays, passing int64) {
	h := r.has.Load()
	want := Footprint{workspace: h.arena.With(f.workspace), lanes: r.dev.lanes, onGPU: r.dev.gpu != nil}
	var slots int64
	for _, have := range h.slots {
		grown := have.with(f.slot)
		slots += slotBytes(grown, want.onGPU) - slotBytes(have, want.onGPU)
		want.slot = want.slot.with(grown)
	}
	for _, have := range h.prefixes {
		slots += slotBytes(have.with(f.prefix), want.onGPU) - slotBytes(have, want.onGPU)
	}
	for _, have := range h.states[:want.states()] {
		slots += max(0, f.state-have)
	}
	arena, _ := want.Bytes()
	if !want.onGPU && want.workspace != h.arena {
		passing = h.arena.Bytes(r.dev.lanes)
	}
	return max(0, arena-r.arenaBytes.Load()) + slots, passing
}

// hold updates the description of what the Runner has. Owner goroutine only.
func (r *Runner) hold(change func(*holding)) {
	next := *r.has.Load()
	change(&next)
	r.has.Store(&next)
}
