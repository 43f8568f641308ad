package engine

import (
	"fmt"
	"unsafe"
)

// Caps bounds the batches of a program. The first three are positive.
type Caps struct {
	MaxTokens    int64 // of a batch
	MaxSeqs      int64 // of a batch
	MaxLen       int64 // of one sequence, in tokens
	MinLen       int64 // of one sequence; 0: it may be empty
	MaxQueryRows int64 // of a batch's queries together (MaxSim); 0 without
	MaxStateRows int64 // of the state that the program writes or reads; 0 without

	// Rows of a batch that it lists by places (Batch.Words and so on); 0: the program has no such
	// rows. A sequence has at most MaxLen words and as many markers.
	MaxWords, MaxMarkers, MaxSpans int64
}

// slotTokens returns the MaxTokens of a slot for batches of the program: the most rows of one kind,
// and the most that C may count where a sequence has more spans than tokens.
func (c Caps) slotTokens() int64 { return c.MaxTokens + c.MaxWords + c.MaxMarkers + c.MaxSpans }

// Value names an intermediate of a program. It has a row for each of the batch's tokens, of the
// tokens that it keeps, of its words, markers or spans, or of its sequences; the columns are fixed.
type Value int32

// NoValue stands for an absent optional operand.
const NoValue Value = 0

// Recorder collects the operations of a program. End hands them to C in one call, which checks
// them. The first error sticks: later calls do nothing and return NoValue, and End returns it. So
// the code of an architecture reads top to bottom without checks in between. A Recorder is for one
// goroutine at a time.
type Recorder struct {
	dev      *Device
	caps     Caps
	entries  []entry
	memory   []unsafe.Pointer // Go memory that entries point to, theirs included
	declared [endOfInputs]bool
	kept     bool
	state    bool
	values   Value // the number of the last one
	stream   Value // the last one
	outputs  []string
	next     string // the name of the next output; "": by its index
	weights  map[*Weight]struct{}
	err      error
	ended    bool
}

// Record begins a program. End must be called, even after an error.
func (d *Device) Record(caps Caps) *Recorder {
	r := &Recorder{dev: d, caps: caps, weights: make(map[*Weight]struct{})}
	r.declareSpace(spaceParams{
		kind: spaceRows, space: spaceTokens, rows: caps.MaxTokens, longest: caps.MaxLen,
		shortest: caps.MinLen,
	}, "tokens")
	r.declareSpace(spaceParams{kind: spaceSeqs, space: spaceSequences, rows: caps.MaxSeqs}, "sequences")
	if caps.MaxQueryRows != 0 {
		r.declareSpace(spaceParams{kind: spaceShared, space: spaceQueries, rows: caps.MaxQueryRows},
			"queries")
	}
	r.declarePlaces()
	return r
}

// Err returns the first error, or nil.
func (r *Recorder) Err() error { return r.err }

// Fail makes err the recorder's error unless it already has one.
func (r *Recorder) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// add appends an entry and sets the size of its struct. The recorder keeps p.
func add[T any](r *Recorder, kind uint32, p *T) {
	at := unsafe.Pointer(p)
	*(*uint32)(at) = uint32(unsafe.Sizeof(*p)) // struct_size comes first
	r.entries = append(r.entries, entry{kind: kind, params: at})
	r.memory = append(r.memory, at)
}

// operation appends an operation with one result. It passes the result's number to fill, under the
// device's lock, so that fill may use weights.
func operation[T any](r *Recorder, kind uint32, fill func(p *T, y Value)) Value {
	if r.err != nil {
		return NoValue
	}
	r.values++
	p := new(T)
	r.dev.do(func() { fill(p, r.values) })
	add(r, kind, p)
	return r.values
}

// name returns text as a C string.
func (r *Recorder) name(text string) unsafe.Pointer {
	b := append([]byte(text), 0)
	p := unsafe.Pointer(&b[0])
	r.memory = append(r.memory, p)
	return p
}

func (r *Recorder) declareSpace(p spaceParams, name string) {
	p.name = r.name(name)
	add(r, kindSpace, &p)
}

// input declares an input on first use, and returns its number.
func (r *Recorder) input(
	number int32, name string, space int32, d DType, optional bool, otherwise int32,
) int32 {
	if !r.declared[number] {
		r.declared[number] = true
		add(r, kindInput, &inputParams{
			input:     number,
			space:     space,
			dtype:     uint32(d),
			optional:  flag(optional),
			otherwise: otherwise,
			name:      r.name(name),
		})
	}
	return number
}

func (r *Recorder) ids() int32 { return r.input(inputIDs, "ids", spaceTokens, I32, false, 0) }
func (r *Recorder) typeIDs() int32 {
	return r.input(inputTypeIDs, "type_ids", spaceTokens, I32, true, 0)
}
func (r *Recorder) adapter() int32 {
	return r.input(inputAdapter, "adapter", spaceSequences, I32, true, -1)
}
func (r *Recorder) partner() int32 {
	return r.input(inputPartner, "partner", spaceSequences, I32, true, -1)
}

// useLocked returns the handle of an operand (nil stays nil) and keeps the weight open for the
// program's life.
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

// Embedding holds the operands of EmbedLayerNorm. Position and Type may be nil. With NoNorm, Gamma
// and Beta are nil, too.
type Embedding struct {
	Word, Position, Type *Weight // tables [·, C]
	Gamma, Beta          *Weight // [C]
	Norm                 Norm
	Eps                  float32
	WeightOffset         float32 // 1 where a checkpoint stores gamma − 1
	Scale                float32 // multiplies the word's row; 0 counts as 1
	PositionOffset       int32
}

// EmbedLayerNorm records y[T, C] = norm(word[id] + position[i + offset] + type[type id]). i counts
// from 0 in each sequence.
func (r *Recorder) EmbedLayerNorm(e Embedding) Value {
	ids, typeIDs := r.ids(), int32(0)
	if e.Type != nil {
		typeIDs = r.typeIDs()
	}
	return operation(r, kindEmbed, func(p *embedParams, y Value) {
		*p = embedParams{
			y: y, ids: ids, typeIDs: typeIDs, positionOffset: e.PositionOffset, word: r.useLocked(e.Word),
			position: r.useLocked(e.Position), typ: r.useLocked(e.Type), gamma: r.useLocked(e.Gamma),
			beta: r.useLocked(e.Beta), norm: uint32(e.Norm), eps: e.Eps, weightOffset: e.WeightOffset,
			factor: e.Scale,
		}
	})
}

// Linear records y[R, N] = act(x·Wᵀ + bias) + residual. bias may be nil, residual NoValue.
func (r *Recorder) Linear(x Value, w, bias *Weight, act Act, residual Value) Value {
	return operation(r, kindLinear, func(p *linearParams, y Value) {
		*p = linearParams{
			act: uint32(act), x: x, residual: residual, y: y, w: r.useLocked(w), bias: r.useLocked(bias),
		}
	})
}

// GatedLinear records y[R, N/2] = g(z[2j])·z[2j + 1] + residual[j], with z = x·Wᵀ + bias. The
// rows of W and bias alternate between gate and up (InterleaveGateUp). bias may be nil, residual
// NoValue.
func (r *Recorder) GatedLinear(x Value, w, bias *Weight, gate Gate, residual Value) Value {
	return operation(r, kindLinear, func(p *linearParams, y Value) {
		*p = linearParams{
			gate: uint32(gate), x: x, residual: residual, y: y, w: r.useLocked(w), bias: r.useLocked(bias),
		}
	})
}

// LayerNorm records y[R, C] = LN(x)·gamma + beta. beta may be nil.
func (r *Recorder) LayerNorm(x Value, gamma, beta *Weight, eps float32) Value {
	return operation(r, kindNorm, func(p *normParams, y Value) {
		*p = normParams{x: x, y: y, gamma: r.useLocked(gamma), beta: r.useLocked(beta), eps: eps}
	})
}

// NormSpec holds the operands of Norm. Residual may be NoValue, Beta and Bias nil.
type NormSpec struct {
	Norm         Norm // not NoNorm
	Residual     Value
	Gamma, Beta  *Weight // [C]
	Bias         *Weight // [C]
	Eps          float32
	WeightOffset float32 // 1 where a checkpoint stores gamma − 1
}

// Norm records y = norm(s) and sum = s, with s = (x + bias) + residual. In nets that normalise
// first, sum is the next residual.
func (r *Recorder) Norm(x Value, n NormSpec) (y, sum Value) {
	if r.err == nil {
		r.values++
		sum = r.values
	}
	y = operation(r, kindNorm, func(p *normParams, y Value) {
		*p = normParams{
			norm: uint32(n.Norm), x: x, residual: n.Residual, y: y, sum: sum, gamma: r.useLocked(n.Gamma),
			beta: r.useLocked(n.Beta), bias: r.useLocked(n.Bias), eps: n.Eps, weightOffset: n.WeightOffset,
		}
	})
	return y, sum
}

// RMSNorm records y[R, C] = x/√(mean x² + eps)·(offset + gamma).
func (r *Recorder) RMSNorm(x Value, gamma *Weight, eps, offset float32) Value {
	return operation(r, kindNorm, func(p *normParams, y Value) {
		*p = normParams{norm: uint32(RMSNorm), x: x, y: y, gamma: r.useLocked(gamma), eps: eps,
			weightOffset: offset}
	})
}

// Columns records a view of the columns [column, column+width) of x.
func (r *Recorder) Columns(x Value, column, width int64) Value {
	return operation(r, kindColumns,
		func(p *columnsParams, y Value) { *p = columnsParams{x: x, y: y, column: column, width: width} })
}

// MaxJoined is the most values of one Join.
const MaxJoined = 3

// Join records y[R, Σ C], the columns of x next to each other in their order. The values, two or
// three, have rows of one kind and are of one class.
func (r *Recorder) Join(x ...Value) Value {
	if len(x) > MaxJoined {
		r.Fail(invalid("join", fmt.Sprintf("%d values: at most %d can be joined", len(x), MaxJoined)))
		return NoValue
	}
	return operation(r, kindJoin, func(p *joinParams, y Value) {
		p.y = y
		copy(p.x[:], x)
	})
}

// Stream makes x a stream, stored in float32 whatever the class of its weights, and returns x. In
// nets that normalise first, each block adds to the sum of all before it; rounded to bf16 or f16
// after every block, the sum of a deep net is not accurate. x is a result of the operation recorded
// last, an embedding, a norm (or its sum) or a linear. Rows gathered or kept from a stream are one,
// too, and rows taken from one are of ComputeF32. Rope does not take a stream.
func (r *Recorder) Stream(x Value) Value {
	if r.err != nil {
		return NoValue
	}
	add(r, kindStream, &streamParams{x: x})
	r.stream = x
	return x
}

// Streams reports whether x was made a stream last.
func (r *Recorder) Streams(x Value) bool { return x == r.stream }

// Attention holds the parameters of an attention operation.
type Attention struct {
	Mask    Mask
	Heads   int32 // of q
	KVHeads int32 // of k and v; Heads is a multiple; 0 counts as Heads
	HeadDim int32
	Window  int32   // WindowMask: keys within ±Window
	Scale   float32 // multiplies q·k; 0 counts as 1/√HeadDim
	ALiBi   *Weight // a vector of slopes [Heads] times the distance, or nil
	// Bias is added to the scores by distance, as DataWeight F32 [Heads, 2·R + 1], or nil. A head's
	// row has the biases of key's place − query's place from −R to R. Farther keys have those of
	// ±R.
	Bias *Weight
	// FirstKeys says that k and v are KeepRows of a batch that keeps the first rows of each
	// sequence (a batch that keeps others is refused). Keys then have places, which a mask, ALiBi
	// and Bias need. A row that sees no key gets zeros.
	FirstKeys bool
	// Which is the row that GatherRows made q of, PoolCLS or PoolLast; 0 for a q of token rows. A
	// mask, ALiBi, Bias and Buckets need it. y has the bits of that row of attention for all rows.
	Which Pooling
	// Segment is the segment of the state that holds k and v of the sequences' prefixes
	// (Batch.PrefixRows), which are then the first keys; 0: none.
	Segment int32
	// PosKey and PosQuery are the tables of disentangled attention (DeBERTa), DataWeight
	// [P, Heads·HeadDim] with at most 8192 rows: F32 on a CPU; on a GPU F16 for the class F16, else
	// BF16. One may be nil. The score of query i and key j is Scale·(q·k + q·PosKey[b] +
	// k·PosQuery[b]), with b = Buckets[i − j]. Buckets, DataWeight I32 [1, 2·R + 1], has the
	// tables' rows by distance from −R to R and never falls; farther keys have those of ±R. Then
	// there is no mask, ALiBi, Bias, FirstKeys or Segment, and KVHeads is Heads.
	PosKey, PosQuery, Buckets *Weight
}

// Attention records y = softmax(scale·q·kᵀ − slope·distance + bias)·v per sequence and head. q has
// token rows, or the one row per sequence that GatherRows makes; k and v have token rows.
func (r *Recorder) Attention(q, k, v Value, a Attention) Value {
	if a.Segment != 0 {
		r.readState()
	}
	return operation(r, kindAttention, func(p *attentionParams, y Value) {
		*p = attentionParams{
			mask: uint32(a.Mask), q: q, k: k, v: v, y: y, heads: a.Heads, kvHeads: a.KVHeads,
			headDim: a.HeadDim, window: a.Window, scale: a.Scale, which: uint32(a.Which),
			alibi: r.useLocked(a.ALiBi), bias: r.useLocked(a.Bias), firstKeys: flag(a.FirstKeys),
			segment: a.Segment, posKey: r.useLocked(a.PosKey), posQuery: r.useLocked(a.PosQuery),
			buckets: r.useLocked(a.Buckets),
		}
	})
}

// Rotation holds the operands of Rope. Cos and Sin are DataWeight F32 [positions, Rot/2]. QGamma
// and KGamma, vectors [HeadDim], normalise each head first; they may be nil. Turns, DataWeight I32
// [lengths, Rot] or nil, gives sequences of more than positions rows angles by their own length, as
// sie_rope_params says; PositionOffset and Behind are then left out.
type Rotation struct {
	Heads, KVHeads, HeadDim int32 // KVHeads 0 counts as Heads
	Rot                     int32 // columns of a head that are rotated, even
	PositionOffset          int32
	Cos, Sin, Turns         *Weight
	QGamma, KGamma          *Weight
	Eps, WeightOffset       float32
	Behind                  bool // positions count the rows of the sequence's prefix, too
}

// Rope rotates q and k [T, heads·D] in place. Operations that are recorded later read each head
// normalised and rotated by its position in the sequence. k may be NoValue.
func (r *Recorder) Rope(q, k Value, t Rotation) {
	if r.err != nil {
		return
	}
	if t.Behind {
		r.readState()
	}
	p := &ropeParams{
		q: q, k: k, heads: t.Heads, kvHeads: t.KVHeads, headDim: t.HeadDim, rot: t.Rot,
		positionOffset: t.PositionOffset, eps: t.Eps, weightOffset: t.WeightOffset, behind: flag(t.Behind),
	}
	r.dev.do(func() {
		p.cos, p.sin, p.turns = r.useLocked(t.Cos), r.useLocked(t.Sin), r.useLocked(t.Turns)
		p.qGamma, p.kGamma = r.useLocked(t.QGamma), r.useLocked(t.KGamma)
	})
	add(r, kindRope, p)
}

// GatherRows records y[B, C], the first (PoolCLS) or last (PoolLast) token row of each sequence.
func (r *Recorder) GatherRows(x Value, which Pooling) Value {
	return operation(r, kindGatherRows,
		func(p *gatherRowsParams, y Value) { *p = gatherRowsParams{which: uint32(which), x: x, y: y} })
}

// Pool records y[B, C] in float32. If x already has sequence rows, they are only widened to
// float32. A sequence without rows gives zeros. PoolWeightedMean weighs kept rows by their places
// among all rows of their sequence.
func (r *Recorder) Pool(x Value, mode Pooling) Value {
	return operation(r, kindPool,
		func(p *poolParams, y Value) { *p = poolParams{mode: uint32(mode), x: x, y: y} })
}

// PoolAttention records y[B, C] in float32, a weighted mean of each sequence's rows. The weights
// are the softmax of the rows' products with w [C].
func (r *Recorder) PoolAttention(x Value, w *Weight) Value {
	return operation(r, kindPool, func(p *poolParams, y Value) {
		*p = poolParams{mode: uint32(poolAttention), x: x, y: y, w: r.useLocked(w)}
	})
}

// KeepRows records y[K, C], the token rows that the batch keeps (Batch.Keep), in order. Operations
// on rows accept them as they accept token rows; Attention accepts them for k and v.
func (r *Recorder) KeepRows(x Value) Value {
	if !r.kept {
		r.kept = true
		marks := r.input(inputKeep, "keep", spaceTokens, U8, true, 1)
		r.declareSpace(spaceParams{kind: spaceSubset, space: spaceKept, marks: marks}, "kept")
	}
	return operation(r, kindKeepRows,
		func(p *keepRowsParams, y Value) { *p = keepRowsParams{to: spaceKept, x: x, y: y} })
}

// LoRA is one adapter's part of one linear: A [rank, K] and B [N, rank], with the scale folded into
// B. Both are DataWeight of one type: F32 on a CPU; on a GPU F16 for the class F16, else BF16. Both
// are nil where the adapter does not change the linear.
type LoRA struct{ A, B *Weight }

// LinearLoRA records y[R, N] = act(x·Wᵀ + bias + B·(A·x)) + residual. A and B belong to the adapter
// that Batch.Adapter names for the row's sequence. Every call gets all adapters of the program, 1
// to 64.
func (r *Recorder) LinearLoRA(x Value, w, bias *Weight, act Act, residual Value, adapters []LoRA) Value {
	return r.adaptedLinear(x, w, bias, linearParams{act: uint32(act), residual: residual}, adapters)
}

// GatedLoRA records GatedLinear with B·(A·x) added to x·Wᵀ + bias, as LinearLoRA does. The rows of
// B are in the order of W's.
func (r *Recorder) GatedLoRA(x Value, w, bias *Weight, gate Gate, residual Value, adapters []LoRA) Value {
	return r.adaptedLinear(x, w, bias, linearParams{gate: uint32(gate), residual: residual}, adapters)
}

// adaptedLinear records a linear with adapters. of holds what else it computes.
func (r *Recorder) adaptedLinear(x Value, w, bias *Weight, of linearParams, adapters []LoRA) Value {
	if len(adapters) == 0 {
		r.Fail(invalid("linear with LoRA", "no adapters: 1 to 64 are possible"))
		return NoValue
	}
	adapter := r.adapter()
	return operation(r, kindLinear, func(p *linearParams, y Value) {
		a, b := make([]unsafe.Pointer, len(adapters)), make([]unsafe.Pointer, len(adapters))
		for i, adapter := range adapters {
			a[i], b[i] = r.useLocked(adapter.A), r.useLocked(adapter.B)
		}
		*p = of
		p.x, p.y, p.w, p.bias = x, y, r.useLocked(w), r.useLocked(bias)
		p.adapter, p.adapters, p.a, p.b =
			adapter, int32(len(adapters)), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])
		r.memory = append(r.memory, p.a, p.b)
	})
}

// Splade records y[B, V] = max(0, the largest logit of the sequence's tokens). The logits are x·Wᵀ
// + bias; bias may be nil. Only OutputSparse and OutputValues can read y.
func (r *Recorder) Splade(x Value, w, bias *Weight) Value {
	return operation(r, kindSplade, func(p *spladeParams, y Value) {
		*p = spladeParams{x: x, y: y, w: r.useLocked(w), bias: r.useLocked(bias)}
	})
}

// MaxSim records y[B, 1] in float32: the late interaction of each sequence with its query. It reads
// the sequence's rows of x (token or kept rows, divided by their norm if normalize) and its query
// in Batch.Queries. A sequence without a query gets 0.
func (r *Recorder) MaxSim(x Value, normalize bool) Value {
	if r.caps.MaxQueryRows == 0 {
		r.Fail(invalid("maxsim", "the program's MaxQueryRows is 0: late interaction needs room for queries"))
		return NoValue
	}
	partner, queries := r.partner(), r.input(inputQueries, "queries", spaceQueries, F32, false, 0)
	return operation(r, kindMaxSim, func(p *maxSimParams, y Value) {
		*p = maxSimParams{normalize: flag(normalize), x: x, y: y, queries: queries, partner: partner}
	})
}

// End hands the program to C, which checks it and plans its memory. It returns the program, or the
// first error of the recording. An error of C names the operation by its number and kind.
func (r *Recorder) End() (*Program, error) {
	if r.ended {
		if r.err == nil {
			panic("engine: Recorder ended twice")
		}
		return nil, r.err
	}
	r.ended = true
	p := &Program{dev: r.dev, caps: r.caps, outputs: len(r.outputs), weights: r.weights}
	r.dev.do(func() {
		r.dev.open["program"]++
		if r.err == nil {
			p.handle, p.workspace, r.err = cProgram(r.dev.ptrLocked(), r.entries, r.memory)
		}
		if r.err == nil {
			p.inputBytes = cProgramInputBytes(p.handle)
			p.about, r.err = cProgramOutputs(p.handle, p.outputs)
		}
		if r.err == nil && r.state {
			p.stateBytes = cProgramStateBytes(p.handle)
			p.reads = r.declared[inputPrefixRows]
		}
		if r.err == nil && r.declared[inputQueries] {
			p.queryColumns, r.err = cProgramColumns(p.handle, inputQueries)
		}
		if r.err != nil {
			p.freeLocked()
		}
	})
	r.entries, r.memory = nil, nil
	if r.err != nil {
		return nil, r.err
	}
	p.mark = watch(p, "program")
	return p, nil
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// NameOutput names the next output: 1 to 31 small letters, digits and '_', no other output's name.
// Without a name it is called by its index, such as output0.
func (r *Recorder) NameOutput(name string) { r.next = name }

// output appends an output. It passes the output's name to fill.
func output[T any](r *Recorder, kind uint32, fill func(p *T, name unsafe.Pointer)) int {
	index := len(r.outputs)
	if index >= MaxOutputs {
		r.Fail(invalid("output", fmt.Sprintf("a program has at most %d outputs", MaxOutputs)))
	}
	name := r.next
	if r.next = ""; name == "" {
		name = fmt.Sprintf("output%d", index)
	}
	r.outputs = append(r.outputs, name)
	if r.err != nil {
		return index
	}
	p := new(T)
	r.dev.do(func() { fill(p, r.name(name)) })
	add(r, kind, p)
	return index
}
