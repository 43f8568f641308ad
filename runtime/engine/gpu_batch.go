package engine

import "unsafe"

// flagBytes is the size of a sequence's flag (Slot.NonFinite).
const flagBytes = 4

// gpuSlot is the device memory and events of a slot. C owns the slot's pinned memory.
type gpuSlot struct {
	events slotEvents
	input  devicePtr
	output [MaxOutputs]devicePtr
	flags  devicePtr // int32 [MaxSeqs]
}

// newGPUSlot allocates device memory for a slot of these capacities. Owner goroutine only.
func (g *gpu) newGPUSlot(caps SlotCaps) (s *gpuSlot, err error) {
	s = &gpuSlot{}
	defer func() {
		if err != nil {
			g.freeGPUSlot(s)
			s = nil
		}
	}()
	if s.events, err = g.driver.newEvents(); err != nil {
		return s, err
	}
	if s.input, err = g.driver.allocate(caps.InputBytes); err != nil {
		return s, err
	}
	if s.flags, err = g.driver.allocate(flagBytes * caps.MaxSeqs); err != nil {
		return s, err
	}
	for i, n := range caps.OutputBytes {
		if n == 0 {
			continue
		}
		if s.output[i], err = g.driver.allocate(n); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (g *gpu) freeGPUSlot(s *gpuSlot) {
	if s.events != nil {
		g.driver.freeEvents(s.events)
	}
	g.freeAll(s.input, s.flags)
	g.freeAll(s.output[:]...)
}

func (g *gpu) freeAll(pointers ...devicePtr) {
	for _, p := range pointers {
		if p != 0 {
			g.driver.free(p)
		}
	}
}

// gpuArena is the device memory of an arena.
type gpuArena struct {
	memory devicePtr
	output [MaxOutputs]devicePtr
	bytes  [MaxOutputs]int64 // of output
}

// placeWeight uploads a packed weight and gives C its address. The caller frees the returned
// memory. Owner goroutine only.
func (g *gpu) placeWeight(handle unsafe.Pointer) (devicePtr, error) {
	bytes := cWeightBytes(handle)
	p, err := g.driver.allocate(bytes)
	if err != nil {
		return 0, err
	}
	if err = g.driver.upload(p, cWeightStaged(handle), bytes); err == nil {
		err = cWeightPlace(handle, p)
	}
	if err != nil {
		g.driver.free(p)
		return 0, err
	}
	return p, nil
}

// newGPUArena allocates the workspace. Outputs are allocated for the first batch that needs them.
// Owner goroutine only.
func (g *gpu) newGPUArena(handle unsafe.Pointer, workspace int64) (*gpuArena, error) {
	p, err := g.driver.allocate(workspace)
	if err != nil {
		return nil, err
	}
	a := &gpuArena{memory: p}
	if err := cArenaPlace(handle, a); err != nil {
		g.driver.free(p)
		return nil, err
	}
	return a, nil
}

func (g *gpu) freeGPUArena(a *gpuArena) {
	g.freeAll(a.memory)
	g.freeAll(a.output[:]...)
}

// fitOutputs makes the arena's outputs as large as the slot's. It frees the old ones first, when no
// batch writes there any more, because both at once may not fit.
func (g *gpu) fitOutputs(arena *Arena, caps SlotCaps) error {
	fits, a := true, arena.gpu
	for i, n := range caps.OutputBytes {
		fits = fits && n <= a.bytes[i]
	}
	if fits {
		return nil
	}
	if err := g.driver.drain(); err != nil {
		return err
	}
	for i, n := range caps.OutputBytes {
		if n <= a.bytes[i] {
			continue
		}
		g.freeAll(a.output[i])
		arena.bytes.Add(-a.bytes[i])
		a.output[i], a.bytes[i] = 0, 0
		p, err := g.driver.allocate(n)
		if err != nil {
			return err
		}
		a.output[i], a.bytes[i] = p, n
		arena.bytes.Add(n)
	}
	return cArenaPlace(arena.ptrLocked(), a)
}

// submit enqueues a loaded batch: its input, its kernels, its outputs. After an error nothing of
// the batch is still running. Owner goroutine only.
func (g *gpu) submit(p *Program, a *Arena, s *Slot, state *State) error {
	if err := g.fitOutputs(a, s.caps); err != nil {
		return err
	}
	err := g.enqueue(p, a, s, state)
	if err != nil {
		_ = g.driver.drain()         // it would return the same error again
		_ = cSlotWait(s.ptrLocked()) // frees the slot if C has submitted its batch
	}
	return err
}

func (g *gpu) enqueue(p *Program, a *Arena, s *Slot, state *State) error {
	input, bytes, err := cSlotInput(s.ptrLocked())
	if err != nil {
		return err
	}
	if err := g.driver.copyInput(s.gpu.events, a.gpu.memory, s.gpu.input, input, bytes); err != nil {
		return err
	}
	if err := cProgramSubmit(p.ptrLocked(), a.ptrLocked(), s.ptrLocked(), state.ptrLocked()); err != nil {
		return err
	}
	var outputs [MaxOutputs + 1]transfer
	flags, at := cSlotNonFinite(s.ptrLocked())
	if err := g.driver.keepOutput(s.gpu.flags, a.gpu.memory+devicePtr(at),
		flagBytes*int64(s.seqs)); err != nil {
		return err
	}
	outputs[0] = transfer{uintptr(flags), s.gpu.flags, flagBytes * int64(s.seqs)}
	n := 1
	for i := range min(p.outputs, len(s.caps.OutputBytes)) {
		bytes := s.caps.OutputBytes[i]
		if s.wanted != nil {
			bytes = min(bytes, s.wanted[i])
		}
		if bytes == 0 {
			continue
		}
		if err := g.driver.keepOutput(s.gpu.output[i], a.gpu.output[i], bytes); err != nil {
			return err
		}
		outputs[n] = transfer{uintptr(s.outputs[i]), s.gpu.output[i], bytes}
		n++
	}
	return g.driver.copyOutputs(s.gpu.events, outputs[:n])
}
