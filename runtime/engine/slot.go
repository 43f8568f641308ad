package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// SlotCaps bounds the batches that a slot can carry.
type SlotCaps struct {
	MaxTokens   int64
	MaxSeqs     int64
	InputBytes  int64   // of the largest batch; 0: on a CPU, room for any without queries
	OutputBytes []int64 // capacity of each output, 1 to MaxOutputs of them
}

// OutItem says how one sequence's row is written to an output. The row is cut to Dims, divided by
// its norm if Normalize is set, converted to DType and written at Offset.
//
// In a sparse output Dims is room for that many columns, and the row's first columns are kept.
// DType is F32 or F16, Offset a multiple of 16, and Normalize false.
//
// In an output that is found (OutputSpans, OutputPairs) Dims is room for that many records, at
// least 1. DType is F32, Offset a multiple of 16, and Normalize false.
type OutItem struct {
	DType     DType // F32, F16, I8, U8 or Binary
	Dims      int   // 0 = all
	Normalize bool
	Threshold float32 // of a found output: logits above it are given; may be infinite. Others: 0
	Offset    int64   // bytes from the start of the output, aligned to the element
}

// outItem has the layout of sie_out_item; native.go asserts it.
type outItem struct {
	dtype     int32
	dims      int32
	normalize uint32
	threshold float32
	offset    int64
}

// Slot carries one batch in and its results out. Load, Submit and Wait of one slot are called in
// that order; Wait may be called from another goroutine than the other two.
type Slot struct {
	dev     *Device
	handle  unsafe.Pointer // guarded by dev.mu
	gpu     *gpuSlot       // GPU
	caps    SlotCaps
	outputs [MaxOutputs]unsafe.Pointer // C memory
	flags   unsafe.Pointer             // C memory, int32 [MaxSeqs]; see NonFinite
	seqs    int                        // of the loaded batch
	wanted  *[MaxOutputs]int64         // GPU: bytes of each output to fetch; nil: its whole capacity
	items   [MaxOutputs][]outItem      // of each output, as Load packed them; room for [MaxSeqs]
	none    []int32                    // [MaxSeqs+1] zeros: the offsets of sequences without rows
	running atomic.Pointer[Program]
	done    *ending // CPU; nil: Wait blocks its thread
	mark    *mark
}

// NewSlot allocates a slot.
func (d *Device) NewSlot(caps SlotCaps) (*Slot, error) {
	if n := len(caps.OutputBytes); n == 0 || n > MaxOutputs {
		return nil, invalid("slot", fmt.Sprintf("%d outputs: must be 1 to %d", n, MaxOutputs))
	}
	if caps.MaxSeqs <= 0 || caps.MaxTokens <= 0 || caps.MaxSeqs > 1<<30 || caps.MaxTokens > 1<<30 {
		return nil, invalid("slot",
			fmt.Sprintf("max tokens %d and max seqs %d: must be 1 to 2^30", caps.MaxTokens, caps.MaxSeqs))
	}
	if caps.InputBytes == 0 {
		caps.InputBytes = anyInputBytes(caps)
	}
	s := &Slot{dev: d, caps: caps, none: make([]int32, caps.MaxSeqs+1)}
	for i := range caps.OutputBytes {
		s.items[i] = make([]outItem, caps.MaxSeqs)
	}
	var err error
	d.do(func() { err = s.createLocked() })
	if err != nil {
		return nil, err
	}
	s.mark = watch(s, "slot")
	return s, nil
}

// anyInputBytes returns a bound on a CPU for the inputs of a batch of any program without queries.
// It counts ids, types, kept rows, the places of words, markers and spans, the values of each
// sequence, and the items of each output, which has rows of tokens or of sequences. Each part ends
// with a cache line.
func anyInputBytes(c SlotCaps) int64 {
	return 32*c.MaxTokens + 100*c.MaxSeqs + 24*max(c.MaxTokens, c.MaxSeqs)*int64(len(c.OutputBytes)) + 4096
}

func (s *Slot) createLocked() error {
	if s.dev.gpu == nil {
		s.done = newEnding()
	}
	h, err := cSlotCreate(s.dev.ptrLocked(), s.caps, s.done.fd())
	if err != nil {
		s.done.close()
		return err
	}
	if s.dev.gpu != nil {
		if s.gpu, err = s.dev.gpu.newGPUSlot(s.caps); err != nil {
			cSlotFree(h)
			return err
		}
	}
	for i := range s.caps.OutputBytes {
		s.outputs[i] = cSlotOutput(h, i)
	}
	s.flags, _ = cSlotNonFinite(h)
	s.handle = h
	s.dev.open["slot"]++
	return nil
}

// Caps returns the bounds that the slot was made with.
func (s *Slot) Caps() SlotCaps { return s.caps }

// Load fills a free slot with the inputs and items of a batch for p. It borrows them for the call.
// On error the slot stays free. It allocates nothing.
func (s *Slot) Load(p *Program, b *Batch) error {
	if err := b.checkLengths(p, int(s.caps.MaxSeqs)); err != nil {
		return err
	}
	if p.outputs > len(s.caps.OutputBytes) {
		return invalid("slot load",
			fmt.Sprintf("the slot has %d outputs, the program %d", len(s.caps.OutputBytes), p.outputs))
	}
	if err := s.pack(b); err != nil {
		return err
	}
	s.seqs = len(b.CuSeqlens) - 1
	if !s.dev.onOwnThread() {
		var err error
		s.dev.do(func() { err = cSlotLoad(s.ptrLocked(), p.ptrLocked(), b, s) })
		return err
	}
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	return cSlotLoad(s.ptrLocked(), p.ptrLocked(), b, s)
}

// pack converts a batch's items to the layout of C.
func (s *Slot) pack(b *Batch) error {
	for o, items := range b.Items {
		s.items[o] = s.items[o][:len(items)]
		for i, it := range items {
			if it.Dims < 0 || it.Dims > 1<<30 {
				return invalid("slot load",
					fmt.Sprintf("item %d of output %d asks for %d dims", i, o, it.Dims))
			}
			s.items[o][i] = outItem{dtype: int32(it.DType), dims: int32(it.Dims), threshold: it.Threshold,
				offset: it.Offset}
			if it.Normalize {
				s.items[o][i].normalize = 1
			}
		}
	}
	return nil
}

// Wait blocks until the submitted batch is done and returns its error. It takes no lock and
// allocates nothing.
func (s *Slot) Wait() error {
	p := s.running.Load()
	if p == nil {
		return invalid("slot wait", "nothing was submitted")
	}
	var failed error
	if s.gpu != nil {
		failed = s.dev.gpu.driver.wait(s.gpu.events)
	}
	s.done.wait()
	err := cSlotWait(s.handle) // Close refuses a running slot, so the handle is stable without the lock
	if failed != nil {
		err = failed
	}
	p.inFlight.Add(-1)
	s.running.Store(nil)
	return err
}

// UnsafeOutput returns a view of one output in C memory, to be called after Wait. It is as long as
// the output's capacity, read-only, and valid until the slot is loaded again or closed.
func (s *Slot) UnsafeOutput(index int) []byte {
	if index < 0 || index >= len(s.caps.OutputBytes) {
		panic(fmt.Sprintf("engine: output %d of a slot with %d", index, len(s.caps.OutputBytes)))
	}
	if s.outputs[index] == nil {
		panic("engine: use of a closed Slot")
	}
	return unsafe.Slice((*byte)(s.outputs[index]), s.caps.OutputBytes[index])
}

// NonFinite returns a view of the batch's flags in C memory, to be called after Wait. A sequence's
// flag is 1 where a row that its outputs were made of holds a NaN or an infinity, whatever the type
// of the output made of it, else 0. The view is read-only and valid as long as that of
// UnsafeOutput.
func (s *Slot) NonFinite() []int32 {
	if s.flags == nil {
		panic("engine: use of a closed Slot")
	}
	return unsafe.Slice((*int32)(s.flags), s.seqs)
}

// Close frees the slot. It panics between Submit and Wait.
func (s *Slot) Close() {
	if s.running.Load() != nil {
		panic("engine: Slot closed while its batch is in flight")
	}
	s.dev.do(func() {
		if s.handle == nil {
			return
		}
		cSlotFree(s.handle)
		s.done.close()
		s.handle = nil
		s.outputs = [MaxOutputs]unsafe.Pointer{}
		s.flags = nil
		if s.gpu != nil {
			s.dev.gpu.freeGPUSlot(s.gpu)
		}
		s.mark.close()
		s.dev.open["slot"]--
	})
}

func (s *Slot) ptrLocked() unsafe.Pointer {
	if s.handle == nil {
		panic("engine: use of a closed Slot")
	}
	return s.handle
}
