package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// MaxOutputs is the largest number of outputs that a program and a slot can have.
const MaxOutputs = 4

// Program is a recorded forward pass. It may be submitted any number of times. Its caps bound each
// batch.
type Program struct {
	dev       *Device
	handle    unsafe.Pointer // guarded by dev.mu
	caps      Caps
	outputs   int
	workspace Workspace
	about     []Output
	// inputBytes is the most that a batch's inputs take in a slot.
	inputBytes int64
	// queryColumns is the width of a batch's queries, 0 without MaxSim.
	queryColumns int64
	stateBytes   int64 // of the state that it writes or reads; 0: none
	reads        bool  // it reads the state
	weights      map[*Weight]struct{}
	inFlight     atomic.Int32 // batches submitted and not waited for
	mark         *mark
}

// Caps returns the bounds that the program was recorded with.
func (p *Program) Caps() Caps { return p.caps }

// Outputs describes the program's outputs, in the order of their indexes. The result is read-only.
func (p *Program) Outputs() []Output { return p.about }

// Workspace returns the size of the arena that the program needs.
func (p *Program) Workspace() Workspace { return p.workspace }

// Workspace is the size of an arena in bytes. An arena has a lane for each executor, and a region
// that long sequences share. A GPU has one lane and no region.
type Workspace struct{ Lane, Region int64 }

// Bytes returns the size of an arena with that many lanes.
func (w Workspace) Bytes(lanes int) int64 { return w.Lane*int64(lanes) + w.Region }

// Covers reports whether an arena of w is large enough for v.
func (w Workspace) Covers(v Workspace) bool { return w.Lane >= v.Lane && w.Region >= v.Region }

// With returns the smallest workspace that covers both.
func (w Workspace) With(v Workspace) Workspace {
	return Workspace{Lane: max(w.Lane, v.Lane), Region: max(w.Region, v.Region)}
}

// Describe lists the operations, one per line, with shapes, types and bytes.
func (p *Program) Describe() (text string) {
	p.dev.do(func() { text = cProgramDescribe(p.ptrLocked()) })
	return text
}

// Close frees the program and releases its weights. It panics while a batch of the program is in
// flight.
func (p *Program) Close() {
	if n := p.inFlight.Load(); n > 0 {
		panic(fmt.Sprintf("engine: Program closed while %d batches of it are in flight", n))
	}
	p.dev.do(func() {
		if p.handle != nil {
			p.freeLocked()
		}
	})
}

// freeLocked frees the program and releases its weights. Caller must hold dev.mu.
func (p *Program) freeLocked() {
	if p.handle != nil {
		cProgramFree(p.handle)
		p.handle = nil
	}
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

// Submit starts the batch loaded into s and returns at once. At most two batches may be in flight
// on a device. Each Submit that succeeds must be followed by one s.Wait; p, a and s must stay open
// until it returns.
func (p *Program) Submit(a *Arena, s *Slot) error { return p.SubmitWith(a, s, nil) }

// SubmitWith is Submit for a program that writes or reads a state. A batch that reads comes after
// the one that wrote: on a CPU after its Wait, on a GPU after its SubmitWith. state must stay open
// until s.Wait returns; nil: none.
func (p *Program) SubmitWith(a *Arena, s *Slot, state *State) error {
	if !p.dev.onOwnThread() {
		var err error
		p.dev.do(func() { err = p.submitLocked(a, s, state) })
		return err
	}
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	return p.submitLocked(a, s, state)
}

func (p *Program) submitLocked(a *Arena, s *Slot, state *State) (err error) {
	if p.dev.gpu != nil {
		err = p.dev.gpu.submit(p, a, s, state)
	} else {
		err = cProgramSubmit(p.ptrLocked(), a.ptrLocked(), s.ptrLocked(), state.ptrLocked())
	}
	if err == nil {
		p.inFlight.Add(1)
		s.running.Store(p)
	}
	return err
}

// Arena is scratch memory for the intermediates of programs. All programs of a device may share it
// if its Workspace covers theirs.
type Arena struct {
	dev    *Device
	handle unsafe.Pointer // guarded by dev.mu
	gpu    *gpuArena      // GPU: guarded by dev.mu
	size   Workspace
	bytes  atomic.Int64
	mark   *mark
}

// NewArena allocates scratch memory for programs whose workspace this one covers.
func (d *Device) NewArena(workspace Workspace) (*Arena, error) {
	if workspace.Lane < 0 || workspace.Region < 0 {
		return nil, invalid("arena", "workspace is negative")
	}
	a := &Arena{dev: d, size: workspace}
	var err error
	d.do(func() { err = a.createLocked() })
	if err != nil {
		return nil, err
	}
	a.mark = watch(a, "arena")
	return a, nil
}

func (a *Arena) createLocked() error {
	h, err := cArenaCreate(a.dev.ptrLocked(), a.size)
	if err != nil {
		return err
	}
	if a.dev.gpu != nil {
		if a.gpu, err = a.dev.gpu.newGPUArena(h, a.size.Lane); err != nil {
			cArenaFree(h)
			return err
		}
	}
	a.handle = h
	a.bytes.Store(cArenaBytes(h))
	a.dev.open["arena"]++
	return nil
}

// Bytes returns the arena's memory on the device. On a GPU that includes the room for outputs,
// which grows.
func (a *Arena) Bytes() int64 { return a.bytes.Load() }

// Close frees the arena. No run may be in flight.
func (a *Arena) Close() {
	a.dev.do(func() {
		if a.handle == nil {
			return
		}
		cArenaFree(a.handle)
		a.handle = nil
		if a.gpu != nil {
			a.dev.gpu.freeGPUArena(a.gpu)
		}
		a.mark.close()
		a.dev.open["arena"]--
	})
}

func (a *Arena) ptrLocked() unsafe.Pointer {
	if a.handle == nil {
		panic("engine: use of a closed Arena")
	}
	return a.handle
}
