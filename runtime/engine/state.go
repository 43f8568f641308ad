package engine

import "unsafe"

// MaxSegments is the largest number of segments that a state has.
const MaxSegments = 256

// StateRows records that the token rows of x become the rows of a segment, 1 to MaxSegments, of the
// state that batches of the program run with. Row i of a batch is row i of the state. A program
// that records it reads no state; it needs no outputs.
func (r *Recorder) StateRows(x Value, segment int32) {
	if r.err != nil {
		return
	}
	r.declareState(stateParams{})
	add(r, kindStateRows, &stateRowsParams{x: x, segment: segment})
}

// readState declares, on first use, that the program reads a state.
func (r *Recorder) readState() {
	if r.err != nil || r.state {
		return
	}
	r.declareState(stateParams{
		first: r.input(inputPrefixFirst, "prefix_first", spaceSequences, I32, true, 0),
		each:  r.input(inputPrefixRows, "prefix_rows", spaceSequences, I32, true, 0),
	})
}

func (r *Recorder) declareState(p stateParams) {
	if r.state {
		return
	}
	r.state = true
	p.rows = r.caps.MaxStateRows
	add(r, kindState, &p)
}

// State is memory for rows that batches of one program write and batches of others read: the keys
// and values of prefixes that sequences share.
type State struct {
	dev    *Device
	handle unsafe.Pointer // guarded by dev.mu
	memory devicePtr      // GPU
	bytes  int64
	mark   *mark
}

// NewState allocates a state for programs that need at most so many bytes (Program.StateBytes).
func (d *Device) NewState(bytes int64) (*State, error) {
	s := &State{dev: d, bytes: bytes}
	var err error
	d.do(func() { err = s.createLocked() })
	if err != nil {
		return nil, err
	}
	s.mark = watch(s, "state")
	return s, nil
}

func (s *State) createLocked() error {
	h, err := cStateCreate(s.dev.ptrLocked(), s.bytes)
	if err != nil {
		return err
	}
	if g := s.dev.gpu; g != nil {
		if s.memory, err = g.driver.allocate(s.bytes); err == nil {
			err = cStatePlace(h, s.memory)
		}
		if err != nil {
			g.freeAll(s.memory)
			cStateFree(h)
			return err
		}
	}
	s.handle = h
	s.dev.open["state"]++
	return nil
}

// Bytes returns the state's memory on the device.
func (s *State) Bytes() int64 { return s.bytes }

// Close frees the state. No run that uses it may be in flight.
func (s *State) Close() {
	s.dev.do(func() {
		if s.handle == nil {
			return
		}
		cStateFree(s.handle)
		s.handle = nil
		if s.dev.gpu != nil {
			s.dev.gpu.freeAll(s.memory)
		}
		s.mark.close()
		s.dev.open["state"]--
	})
}

// ptrLocked returns the handle, nil for no state.
func (s *State) ptrLocked() unsafe.Pointer {
	if s == nil {
		return nil
	}
	if s.handle == nil {
		panic("engine: use of a closed State")
	}
	return s.handle
}

// StateBytes returns the size of the state that batches of p write or read; 0: none.
func (p *Program) StateBytes() int64 { return p.stateBytes }

// writes reports whether batches of p write a state.
func (p *Program) writes() bool { return p.stateBytes > 0 && !p.reads }
