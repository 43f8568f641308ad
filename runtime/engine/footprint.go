package engine

import "slices"

// Footprint is the memory that batches of some programs take of a Runner, beside weights. Its parts
// are counted one by one, as the Runner enlarges them: two programs together need the larger of
// each part, which may be more than either needs in all. The zero value is that of no program.
type Footprint struct {
	workspace Workspace
	slot      SlotCaps // of each of the slots
	lanes     int      // of the device's arenas
	card      bool     // outputs lie in the arena, too
}

// Footprint is what a Runner takes at most for batches of p whose outputs have so many bytes or
// less, those that are not named few.
func (p *Program) Footprint(outBytes ...int64) Footprint {
	c := SlotCaps{MaxTokens: p.caps.MaxTokens, MaxSeqs: p.caps.MaxSeqs, InputBytes: p.inputBytes}
	for i := range p.outputs {
		var n int64
		if i < len(outBytes) {
			n = outBytes[i]
		}
		c.OutputBytes = append(c.OutputBytes, outputSize(n))
	}
	return Footprint{workspace: p.workspace, slot: c, lanes: p.dev.lanes, card: p.dev.gpu != nil}
}

// With is the smallest footprint that covers both. They are of devices of one kind.
func (f Footprint) With(g Footprint) Footprint {
	return Footprint{workspace: f.workspace.With(g.workspace), slot: f.slot.with(g.slot), lanes: max(f.lanes, g.lanes), card: f.card || g.card}
}

// Bytes is what a Runner without an arena or slots takes for it: in its arena, through which a
// GPU's outputs go, and in its slots.
func (f Footprint) Bytes() (arena, slots int64) {
	arena = f.workspace.Bytes(f.lanes)
	if f.card {
		for _, n := range f.slot.OutputBytes {
			arena += n
		}
	}
	return arena, slotsInFlight * slotBytes(f.slot, f.card)
}

// with are the smallest bounds that cover both.
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

// slotBytes is the memory of a slot.
func slotBytes(c SlotCaps, card bool) int64 {
	n := c.InputBytes // as C lays them out
	if !card {        // for each sequence a slab of its own, its places in the order and its flag (csrc/slot.cc)
		n += 576 * c.MaxSeqs
	}
	for _, out := range c.OutputBytes {
		n += out
	}
	return n
}

// holding is what a Runner has. It is never changed: the owner replaces it.
type holding struct {
	arena Workspace
	slots [slotsInFlight]SlotCaps
}

// Growth is what the Runner takes beside what it has, in bytes, until batches of footprint f fit.
// stays is kept. passing is the arena of now where that is replaced: on a CPU it lies beside the
// new one until the batch that runs in it has ended.
func (r *Runner) Growth(f Footprint) (stays, passing int64) {
	h := r.has.Load()
	want := Footprint{workspace: h.arena.With(f.workspace), lanes: r.dev.lanes, card: r.dev.gpu != nil}
	var slots int64
	for _, have := range h.slots {
		grown := have.with(f.slot)
		slots += slotBytes(grown, want.card) - slotBytes(have, want.card)
		want.slot = want.slot.with(grown)
	}
	arena, _ := want.Bytes()
	if !want.card && want.workspace != h.arena {
		passing = h.arena.Bytes(r.dev.lanes)
	}
	return max(0, arena-r.arenaBytes.Load()) + slots, passing
}

// hold notes what the Runner has. Owner goroutine.
func (r *Runner) hold(change func(*holding)) {
	next := *r.has.Load()
	change(&next)
	r.has.Store(&next)
}
