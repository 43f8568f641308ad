package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// MaxOutputs is the number of outputs a program and a slot can have.
const MaxOutputs = 4

// Program is a recorded forward pass. It may be submitted any number of times; its caps bound each batch.
type Program struct {
	dev       *Device
	handle    unsafe.Pointer // guarded by dev.mu
	caps      Caps
	outputs   int
	workspace int64
	weights   map[*Weight]struct{}
	inFlight  atomic.Int32 // submitted and not waited for
	mark      *mark
}

// Caps are the bounds it was recorded with.
func (p *Program) Caps() Caps { return p.caps }

// Outputs is the number of declared outputs.
func (p *Program) Outputs() int { return p.outputs }

// Workspace is the size in bytes an arena needs to run the program.
func (p *Program) Workspace() int64 { return p.workspace }

// Describe lists the operations, one a line, with shapes, types and bytes.
func (p *Program) Describe() string {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	return cProgramDescribe(p.ptrLocked())
}

// Close frees the program and lets go of its weights. It panics while a batch of it is in flight.
func (p *Program) Close() {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.handle == nil {
		return
	}
	if n := p.inFlight.Load(); n > 0 {
		panic(fmt.Sprintf("engine: Program closed while %d batches of it are in flight", n))
	}
	p.freeLocked()
}

// freeLocked is the second half of Close. Caller must hold dev.mu.
func (p *Program) freeLocked() {
	cProgramFree(p.handle)
	p.handle = nil
	p.mark.close()
	for w := range p.weights {
		w.uses--
	}
	p.weights = nil
	p.dev.open["program"]--
}

func (p *Program) ptrLocked() unsafe.Pointer {
	if p.handle == nil {
		panic("engine: use of a closed Program")
	}
	return p.handle
}

// Submit starts the batch loaded into s and returns at once; at most two batches may be in flight on a device. p, a and
// s must stay open until s.Wait returns, which must be called once for each Submit that succeeded.
func (p *Program) Submit(a *Arena, s *Slot) error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := cProgramSubmit(p.ptrLocked(), a.ptrLocked(), s.ptrLocked()); err != nil {
		return err
	}
	p.inFlight.Add(1)
	s.running.Store(p)
	return nil
}

// Arena is scratch memory for intermediates, shared by all programs of a device whose Workspace it covers.
type Arena struct {
	dev    *Device
	handle unsafe.Pointer // guarded by dev.mu
	size   int64
	bytes  int64
	mark   *mark
}

// NewArena allocates scratch memory for programs of up to workspace bytes.
func (d *Device) NewArena(workspace int64) (*Arena, error) {
	if workspace < 0 {
		return nil, invalid("arena", "workspace is negative")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := cArenaCreate(d.ptrLocked(), workspace)
	if err != nil {
		return nil, err
	}
	a := &Arena{dev: d, handle: h, size: workspace, bytes: cArenaBytes(h)}
	d.open["arena"]++
	a.mark = watch(a, "arena")
	return a, nil
}

// Bytes is what the arena takes on the device.
func (a *Arena) Bytes() int64 { return a.bytes }

// Close frees the arena. No run may be in flight.
func (a *Arena) Close() {
	a.dev.mu.Lock()
	defer a.dev.mu.Unlock()
	if a.handle == nil {
		return
	}
	cArenaFree(a.handle)
	a.handle = nil
	a.mark.close()
	a.dev.open["arena"]--
}

func (a *Arena) ptrLocked() unsafe.Pointer {
	if a.handle == nil {
		panic("engine: use of a closed Arena")
	}
	return a.handle
}
