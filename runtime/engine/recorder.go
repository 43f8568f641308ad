package engine

import "unsafe"

// Caps bound the batches of a program. The first three are positive.
type Caps struct {
	MaxTokens    int64 // of a batch
	MaxSeqs      int64 // of a batch
	MaxLen       int64 // of one sequence, in tokens
	MaxQueryRows int64 // of a batch's queries together (MaxSim); 0 without
}

// Value names an intermediate of a program: rows are the batch's tokens, those it keeps, or its sequences; columns are fixed.
type Value int32

// NoValue stands for an absent optional operand.
const NoValue Value = -1

// Recorder appends operations to a program. The first error sticks: later calls do nothing and return NoValue, and End
// returns it, so that an architecture reads top to bottom without checks in between. For one goroutine at a time.
type Recorder struct {
	dev     *Device
	handle  unsafe.Pointer
	caps    Caps
	weights map[*Weight]struct{}
	outputs int
	err     error
}

// Record begins a program. End must be called, also after an error.
func (d *Device) Record(caps Caps) *Recorder {
	r := &Recorder{dev: d, caps: caps, weights: make(map[*Weight]struct{})}
	d.do(func() {
		if r.handle, r.err = cProgramBegin(d.ptrLocked(), caps); r.err == nil {
			d.open["program"]++
		}
	})
	return r
}

// Err returns the first error, or nil.
func (r *Recorder) Err() error { return r.err }

// Fail makes err the recorder's error unless it has one.
func (r *Recorder) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// record runs one appending call under the device's lock.
func (r *Recorder) record(call func() (Value, error)) Value {
	if r.err != nil {
		return NoValue
	}
	v := NoValue
	r.dev.do(func() { v, r.err = call() })
	if r.err != nil {
		return NoValue
	}
	return v
}

// useLocked returns the handle of an operand (nil stays nil) and keeps the weight for the program's life.
func (r *Recorder) useLocked(w *Weight) unsafe.Pointer {
	if w == nil {
		return nil
	}
	if w.handle == nil {
		panic("engine: use of a closed Weight")
	}
	if _, ok := r.weights[w]; !ok {
		r.weights[w] = struct{}{}
		w.uses++
	}
	return w.handle
}

// Embedding are the operands of EmbedLayerNorm. Position and Type may be nil.
type Embedding struct {
	Word, Position, Type *Weight // tables [·, C]
	Gamma, Beta          *Weight // [C]
	Eps                  float32
	PositionOffset       int32
}

// EmbedLayerNorm gives y[T, C] = LN(word[id] + position[i + offset] + type[type id]), i counting from 0 in each sequence.
func (r *Recorder) EmbedLayerNorm(e Embedding) Value {
	return r.record(func() (Value, error) {
		return cEmbedLayerNorm(r.handle, r.useLocked(e.Word), r.useLocked(e.Position), r.useLocked(e.Type),
			r.useLocked(e.Gamma), r.useLocked(e.Beta), e.Eps, e.PositionOffset)
	})
}

// Linear gives y[R, N] = act(x·Wᵀ + bias) + residual. bias may be nil, residual NoValue.
func (r *Recorder) Linear(x Value, w, bias *Weight, act Act, residual Value) Value {
	return r.record(func() (Value, error) {
		return cLinear(r.handle, x, r.useLocked(w), r.useLocked(bias), act, residual)
	})
}

// LayerNorm gives y[R, C] = LN(x)·gamma + beta. beta may be nil.
func (r *Recorder) LayerNorm(x Value, gamma, beta *Weight, eps float32) Value {
	return r.record(func() (Value, error) {
		return cLayerNorm(r.handle, x, r.useLocked(gamma), r.useLocked(beta), eps)
	})
}

// Columns is a view of columns [column, column+width) of x.
func (r *Recorder) Columns(x Value, column, width int64) Value {
	return r.record(func() (Value, error) { return cColumns(r.handle, x, column, width) })
}

// Attention are the parameters of an attention operation.
type Attention struct {
	Mask    Mask
	Heads   int32 // of q
	KVHeads int32 // of k and v; Heads is a multiple
	HeadDim int32
	Window  int32   // WindowMask: keys within ±Window
	Scale   float32 // multiplies q·k
}

// Attention gives y = softmax(scale·q·kᵀ)·v per sequence and head. q has token rows, or one row per sequence as made
// from GatherRows; k and v have token rows.
func (r *Recorder) Attention(q, k, v Value, a Attention) Value {
	return r.record(func() (Value, error) { return cAttention(r.handle, q, k, v, a) })
}

// GatherRows gives y[B, C], the first (PoolCLS) or last (PoolLast) token row of each sequence.
func (r *Recorder) GatherRows(x Value, which Pooling) Value {
	return r.record(func() (Value, error) { return cGatherRows(r.handle, x, which) })
}

// Pool gives y[B, C] in float32. x may have sequence rows already, then it is only widened.
func (r *Recorder) Pool(x Value, mode Pooling) Value {
	return r.record(func() (Value, error) { return cPool(r.handle, x, mode) })
}

// KeepRows gives y[K, C], the token rows the batch keeps (Batch.Keep), in order. Operations on rows take them as they take
// token rows; Attention does not.
func (r *Recorder) KeepRows(x Value) Value {
	return r.record(func() (Value, error) { return cKeepRows(r.handle, x) })
}

// LoRA is one adapter's part of one linear: DataWeight of one type (F32 on a CPU; on a GPU F16 for the class F16, else BF16),
// A [rank, K] and B [N, rank], the scale folded into B. Both are nil where the adapter has none of it.
type LoRA struct{ A, B *Weight }

// LinearLoRA gives y[R, N] = act(x·Wᵀ + bias + B·(A·x)) + residual, with the adapter that Batch.Adapter names for each row's
// sequence. adapters has all of the program's, 1 to 64, at every call.
func (r *Recorder) LinearLoRA(x Value, w, bias *Weight, act Act, residual Value, adapters []LoRA) Value {
	return r.record(func() (Value, error) {
		a, b := make([]unsafe.Pointer, len(adapters)), make([]unsafe.Pointer, len(adapters))
		for i, adapter := range adapters {
			a[i], b[i] = r.useLocked(adapter.A), r.useLocked(adapter.B)
		}
		return cLinearLoRA(r.handle, x, r.useLocked(w), r.useLocked(bias), act, residual, a, b)
	})
}

// Splade gives y[B, V] = max(0, the largest logit of the sequence's tokens, x·Wᵀ + bias). bias may be nil. OutputSparse and
// OutputValues alone read y.
func (r *Recorder) Splade(x Value, w, bias *Weight) Value {
	return r.record(func() (Value, error) { return cSplade(r.handle, x, r.useLocked(w), r.useLocked(bias)) })
}

// MaxSim gives y[B, 1] in float32: the late interaction of each sequence's rows of x (token or kept rows, divided by their
// norm if normalize) with its query, of Batch.Queries; 0 without one.
func (r *Recorder) MaxSim(x Value, normalize bool) Value {
	return r.record(func() (Value, error) { return cMaxSim(r.handle, x, normalize) })
}

// End plans the program's memory and returns it, or the first error of the recording.
func (r *Recorder) End() (*Program, error) {
	if r.handle == nil {
		if r.err == nil {
			panic("engine: Recorder ended twice")
		}
		return nil, r.err
	}
	p := &Program{dev: r.dev, handle: r.handle, caps: r.caps, outputs: r.outputs, weights: r.weights}
	r.handle = nil
	r.dev.do(func() {
		if r.err == nil {
			p.workspace, r.err = cProgramEnd(p.handle)
			p.inputBytes = cProgramInputBytes(p.handle)
			p.queryBytes = cProgramQueryBytes(p.handle)
		}
		if r.err != nil {
			p.freeLocked()
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	p.mark = watch(p, "program")
	return p, nil
}
