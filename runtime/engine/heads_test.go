package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// The tiny program's rows with every kind of output after them, small enough to check by hand. x
// has the rows that tinyToken gives before the linear: (-0.5, 2) for ids 0 and 2, and (1.5, -2) for
// id 1.
//
//	0  the kept rows of x
//	1  MaxSim of x's kept rows, not normalised
//	2  SPLADE over W = [[1, 1], [0, -1], [-1, 0]]: max over tokens of (x0 + x1, -x1, -x0),
//	   log(1 + v) of what is above 0
//	3  the rows of x·Wᵀ + B·A·x, W = 1, of the adapters A = (1, 0), B = (10, 0)ᵀ and A = (0, 1),
//	   B = (0, 100)ᵀ
type tinyHeads struct {
	program *Program
	weights []*Weight
}

func int32Bytes(values ...int32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

func newTinyHeads(t *testing.T, d *Device) *tinyHeads {
	t.Helper()
	m := &tinyHeads{}
	weight := func(kind WeightKind, k int64, values ...float32) *Weight {
		w, err := d.NewWeight(WeightSpec{Kind: kind, Compute: ComputeF32, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(values...), Rows: int64(len(values)) / k}}})
		if err != nil {
			t.Fatal(err)
		}
		m.weights = append(m.weights, w)
		return w
	}
	r := d.Record(Caps{MaxTokens: 32, MaxSeqs: 8, MaxLen: 16, MaxQueryRows: 6})
	x := r.EmbedLayerNorm(Embedding{
		Word:  weight(TableWeight, 2, 0, 2, 6, 2, -1, 1),
		Gamma: weight(VectorWeight, 1, 1, 2),
		Beta:  weight(VectorWeight, 1, 0.5, 0),
	})
	kept := r.KeepRows(x)
	r.OutputTokenRows(kept)
	r.OutputValues(r.MaxSim(kept, false))
	r.OutputSparse(r.Splade(x, weight(LinearWeight, 2, 1, 1, 0, -1, -1, 0), nil), SparseLog)
	r.OutputTokenRows(r.LinearLoRA(x, weight(LinearWeight, 2, 1, 0, 0, 1), nil, NoAct, NoValue, []LoRA{
		{A: weight(DataWeight, 2, 1, 0), B: weight(DataWeight, 1, 10, 0)},
		{A: weight(DataWeight, 2, 0, 1), B: weight(DataWeight, 1, 0, 100)}}))
	var err error
	if m.program, err = r.End(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.program.Close()
		for _, w := range m.weights {
			w.Close()
		}
	})
	return m
}

// batch has the sequences 0 1 | 1 | 2 0 1 and every optional input. Sequence 1 keeps no token and
// has neither a query nor an adapter.
func (m *tinyHeads) batch() *Batch {
	b := &Batch{
		Program:   m.program,
		IDs:       []int32{0, 1, 1, 2, 0, 1},
		CuSeqlens: []int32{0, 2, 3, 6},
		Keep:      []uint8{0, 1, 0, 1, 0, 1},
		Adapter:   []int32{1, -1, 0},
		Queries:   []float32{1, 0, 0, 1, 2, 2},
		CuQueries: []int32{0, 2, 3},
		Partner:   []int32{1, -1, 0},
	}
	b.Items[0] = []OutItem{{DType: F32, Offset: 16}, {DType: F32}, {DType: I8, Offset: 2}}
	b.Items[2] = []OutItem{
		{DType: F32, Dims: 3}, {DType: F32, Dims: 3, Offset: 48}, {DType: F32, Dims: 1, Offset: 96},
	}
	b.Items[3] = []OutItem{{DType: F32}, {DType: F32, Offset: 16}, {DType: F32, Offset: 24}}
	b.OutBytes = [MaxOutputs]int64{24, 12, 128, 48}
	return b
}

func TestHeadsByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			m := newTinyHeads(t, d)
			r := NewRunner(d)
			t.Cleanup(r.Close)
			b := m.batch()
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			if err := near(floatsOf(b.Out[0][16:]), []float32{1.5, -2}); err != nil {
				t.Errorf("the kept row of sequence 0: %v", err)
			}
			// (-0.5, 2)/2·127 and (1.5, -2)/2·127, ties to even.
			if got := b.Out[0][2:6]; !slices.Equal(got, []byte{0xe0, 127, 95, 0x81}) {
				t.Errorf("the kept rows of sequence 2 as int8: %v", got)
			}
			// (2, 2) against (1.5, -2); (1, 0) and (0, 1) against (-0.5, 2) and (1.5, -2).
			if err := near(floatsOf(b.Out[1]), []float32{-1, 0, 1.5 + 2}); err != nil {
				t.Errorf("late interaction: %v", err)
			}
			ln := func(x float64) float32 { return float32(math.Log1p(x)) }
			for i, want := range []struct {
				count   int
				columns []int32
				values  []float32
			}{{3, []int32{0, 1, 2}, []float32{ln(1.5), ln(2), ln(0.5)}}, {1, []int32{1}, []float32{ln(2)}},
				{3, []int32{0}, []float32{ln(1.5)}}} {
				it := b.Items[2][i]
				count, columns, values := SparseRow(b.Out[2][it.Offset:], it.Dims, it.DType)
				if err := near(floatsOf(values), want.values); err != nil || count != want.count ||
					!slices.Equal(columns, want.columns) {
					t.Errorf("sparse row %d: %d columns, %v, %v", i, count, columns, err)
				}
			}
			if err := near(floatsOf(b.Out[3]),
				[]float32{-0.5, 202, 1.5, -202, 1.5, -2, -5.5, 2, -5.5, 2, 16.5, -2}); err != nil {
				t.Errorf("rows with adapters: %v", err)
			}
			// Without the optional inputs all rows are kept, and there is no query and no adapter.
			b.Keep, b.Adapter, b.Queries, b.CuQueries, b.Partner = nil, nil, nil, nil, nil
			b.Items[0] = []OutItem{{DType: F32}, {DType: F32, Offset: 16}, {DType: F32, Offset: 24}}
			b.OutBytes[0] = 48
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			rows := []float32{-0.5, 2, 1.5, -2, 1.5, -2, -0.5, 2, -0.5, 2, 1.5, -2}
			if err := errors.Join(near(floatsOf(b.Out[0]), rows),
				near(floatsOf(b.Out[1]), make([]float32, 3)), near(floatsOf(b.Out[3]), rows)); err != nil {
				t.Errorf("without choices: %v", err)
			}
		})
	}
}

// A slice whose length contradicts the others is refused before C sees it.
func TestBatchLengths(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	m := newTinyHeads(t, d)
	r := NewRunner(d)
	t.Cleanup(r.Close)
	for name, change := range map[string]func(b *Batch){
		"keep":              func(b *Batch) { b.Keep = b.Keep[:5] },
		"keep of 2":         func(b *Batch) { b.Keep[0] = 2 },
		"adapter":           func(b *Batch) { b.Adapter = b.Adapter[:2] },
		"adapter 2 of 2":    func(b *Batch) { b.Adapter[0] = 2 },
		"partner":           func(b *Batch) { b.Partner = append(b.Partner, 0) },
		"partner 2 of 2":    func(b *Batch) { b.Partner[0] = 2 },
		"partner, no query": func(b *Batch) { b.CuQueries = nil },
		"query values":      func(b *Batch) { b.Queries = b.Queries[:5] },
		"query ends":        func(b *Batch) { b.CuQueries[2] = 4 },
		"query rows":        func(b *Batch) { b.CuQueries[2], b.Queries = 7, make([]float32, 14) },
		"items":             func(b *Batch) { b.Items[0] = b.Items[0][:2] },
		"no items":          func(b *Batch) { b.Items[2] = nil },
		"dims":              func(b *Batch) { b.Items[2][0].Dims = -1 },
		"sparse offset":     func(b *Batch) { b.Items[2][1].Offset = 40 },
	} {
		b := m.batch()
		change(b)
		if err := r.Run(context.Background(), b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := m.batch()
	if err := r.Run(context.Background(), b); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestMuveraSum(t *testing.T) {
	// With no bits, one repetition and the identity, a query's encoding is the sum of its rows. A
	// sketch to 3 columns moves them to their places.
	d := openTest(t, Options{Threads: 1})
	tables := map[string]*Weight{}
	for name, w := range map[string]WeightSpec{
		"word": {Kind: TableWeight, Compute: ComputeF32, DType: F32, K: 2,
			Parts: []Part{{Data: bytesOf(0, 2, 6, 2), Rows: 2}}},
		"gamma":  {Kind: VectorWeight, DType: F32, K: 1, Parts: []Part{{Data: bytesOf(1, 2), Rows: 2}}},
		"sketch": {Kind: DataWeight, DType: I32, K: 1, Parts: []Part{{Data: int32Bytes(2, ^0), Rows: 2}}},
		"wrong":  {Kind: DataWeight, DType: I32, K: 1, Parts: []Part{{Data: int32Bytes(2, 3), Rows: 2}}},
	} {
		var err error
		if tables[name], err = d.NewWeight(w); err != nil {
			t.Fatal(err)
		}
		defer tables[name].Close()
	}
	record := func(sketch *Weight) (*Program, error) {
		r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
		x := r.EmbedLayerNorm(Embedding{Word: tables["word"], Gamma: tables["gamma"]})
		r.OutputMuvera(x, Muvera{Repetitions: 1, Query: true})
		r.OutputMuvera(x, Muvera{Repetitions: 1, Query: true, FinalDims: 3, Sketch: sketch})
		return r.End()
	}
	if _, err := record(tables["wrong"]); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "sketch") {
		t.Errorf("a sketch to column 3 of 3: %v", err)
	}
	p, err := record(tables["sketch"])
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := NewRunner(d)
	defer r.Close()
	b := &Batch{Program: p, IDs: []int32{0, 0, 1}, CuSeqlens: []int32{0, 3}}
	b.Items[0], b.Items[1] = []OutItem{{DType: F32}}, []OutItem{{DType: F32}}
	b.OutBytes[0], b.OutBytes[1] = 8, 12
	if err := r.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(near(floatsOf(b.Out[0]), []float32{-1, 2}),
		near(floatsOf(b.Out[1]), []float32{-2, 0, -1})); err != nil {
		t.Error(err)
	}
}

func TestOrderSketch(t *testing.T) {
	if !Built {
		t.Skip("no native engine: run `make test-go`")
	}
	// Two repetitions of three entries each, to two columns.
	output, source, err := OrderSketch([]int32{1, ^0, 1, 0, 0, ^1}, 2, 3, 2)
	if err != nil || !slices.Equal(output, []int32{1 << 10, 0, 1<<10 | 1, 0, 1 << 10, 1}) ||
		!slices.Equal(source, []int32{0, ^1, 2, 0, ^2, 1}) {
		t.Errorf("%v, %v, %v", output, source, err)
	}
	for _, c := range []struct {
		n, repetitions, block, dims int
		want                        error
	}{{5, 2, 3, 2, ErrInvalid}, {6, 0, 3, 2, ErrInvalid}, {6, 2, 0, 2, ErrInvalid}, {6, 2, 3, 0, ErrInvalid},
		{6, 2, 3, 1 << 40, ErrInvalid}, {6, 2, 3, 1, ErrCorrupt}} {
		sketch := []int32{1, 0, 0, 0, 0, 0}[:c.n]
		if _, _, err := OrderSketch(sketch, c.repetitions, c.block, c.dims); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Columns of several values next to each other: whole rows, a view and pooled rows.
func TestJoinByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			word, err := d.NewWeight(WeightSpec{Kind: TableWeight, Compute: ComputeF32, DType: F32, K: 2,
				Parts: []Part{{Data: bytesOf(1, 2, 3, 5), Rows: 2}}})
			if err != nil {
				t.Fatal(err)
			}
			defer word.Close()
			record := func(join func(r *Recorder, x Value)) (*Program, error) {
				r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
				join(r, r.EmbedLayerNorm(Embedding{Word: word, Norm: NoNorm}))
				return r.End()
			}
			p, err := record(func(r *Recorder, x Value) {
				r.OutputValues(r.Join(x, r.Columns(x, 1, 1), x))
				r.OutputValues(r.Join(r.Pool(x, PoolMean), r.Pool(x, PoolLast)))
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			r := NewRunner(d)
			defer r.Close()
			b := &Batch{Program: p, IDs: []int32{0, 1, 1}, CuSeqlens: []int32{0, 2, 3}}
			b.OutBytes[0], b.OutBytes[1] = 3*5*4, 2*4*4
			if err := r.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			if err := near(floatsOf(b.Out[0]),
				[]float32{1, 2, 2, 1, 2, 3, 5, 5, 3, 5, 3, 5, 5, 3, 5}); err != nil {
				t.Error(err)
			}
			if err := near(floatsOf(b.Out[1]), []float32{2, 3.5, 3, 5, 3, 5, 3, 5}); err != nil {
				t.Error(err)
			}
			for name, join := range map[string]func(r *Recorder, x Value){
				"x[1]":     func(r *Recorder, x Value) { r.OutputValues(r.Join(x)) },
				"4 values": func(r *Recorder, x Value) { r.OutputValues(r.Join(x, x, x, x)) },
			} {
				p, err := record(join)
				if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
				}
				if p != nil {
					p.Close()
				}
			}
		})
	}
}

// Attention by a relative bias alone, whose reach is shorter than the text.
func TestRelativeBiasByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			weight := func(s WeightSpec) *Weight {
				s.DType, s.Compute = F32, ComputeF32
				w, err := d.NewWeight(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Close)
				return w
			}
			word := weight(WeightSpec{Kind: TableWeight, K: 2,
				Parts: []Part{{Data: bytesOf(0, 1, 0, 10, 0, 100), Rows: 3}}})
			ln2, ln3 := float32(math.Log(2)), float32(math.Log(3))
			bias := weight(WeightSpec{Kind: DataWeight, K: 3,
				Parts: []Part{{Data: bytesOf(ln2, 0, ln3), Rows: 1}}})
			r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
			x := r.EmbedLayerNorm(Embedding{Word: word, Norm: NoNorm})
			zero, v := r.Columns(x, 0, 1), r.Columns(x, 1, 1)
			r.OutputValues(r.Attention(zero, zero, v, Attention{Heads: 1, HeadDim: 1, Bias: bias}))
			p, err := r.End()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if text := p.Describe(); !strings.Contains(text, "bias by distance to 1") {
				t.Errorf("described as %s", text)
			}
			run := NewRunner(d)
			defer run.Close()
			b := &Batch{Program: p, IDs: []int32{0, 1, 2, 2}, CuSeqlens: []int32{0, 3, 4}}
			b.OutBytes[0] = 4 * 4
			if err := run.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			if err := near(floatsOf(b.Out[0]), []float32{331. / 7, 52, 24.4, 100}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Disentangled attention of one head of one column. Texts are [1 2 3] and [2]; distances beyond 1
// share a row of the tables. All rows of the tables differ, so that a turned sign, a bucket beside
// the right one or the wrong table gives another number.
func TestDisentangledAttentionByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			weight := func(s WeightSpec) *Weight {
				s.Compute = ComputeF32
				w, err := d.NewWeight(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Close)
				return w
			}
			data := func(values ...float32) *Weight {
				return weight(WeightSpec{Kind: DataWeight, DType: F32, K: 1,
					Parts: []Part{{Data: bytesOf(values...), Rows: int64(len(values))}}})
			}
			word := weight(WeightSpec{Kind: TableWeight, DType: F32, K: 3,
				Parts: []Part{{Data: bytesOf(1, 0.5, 10, 2, -1, 100, 3, 2, 1000), Rows: 3}}})
			posKey, posQuery := data(0.25, -0.5, 1, 0.75), data(-0.125, 0.5, 0.375, -1)
			buckets := weight(WeightSpec{Kind: DataWeight, DType: I32, K: 3,
				Parts: []Part{{Data: int32Bytes(0, 1, 3), Rows: 1}}})
			r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
			x := r.EmbedLayerNorm(Embedding{Word: word, Norm: NoNorm})
			q, k, v := r.Columns(x, 0, 1), r.Columns(x, 1, 1), r.Columns(x, 2, 1)
			of := Attention{Heads: 1, HeadDim: 1, Scale: 0.5, PosKey: posKey, PosQuery: posQuery,
				Buckets: buckets}
			r.OutputValues(r.Attention(q, k, v, of))
			of.PosQuery = nil
			r.OutputValues(r.Attention(q, k, v, of))
			of.PosKey, of.PosQuery = nil, posQuery
			r.OutputValues(r.Attention(q, k, v, of))
			of.PosKey, of.Which = posKey, PoolLast
			r.OutputValues(r.Attention(r.GatherRows(q, PoolLast), k, v, of))
			p, err := r.End()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			text := p.Describe()
			if !strings.Contains(text, "disentangled pos_key pos_query by distance to 1") {
				t.Errorf("described as %s", text)
			}
			run := NewRunner(d)
			defer run.Close()
			b := &Batch{Program: p, IDs: []int32{0, 1, 2, 1}, CuSeqlens: []int32{0, 3, 4}}
			for i, rows := range []int64{4, 4, 4, 2} {
				b.OutBytes[i] = 4 * rows
			}
			if err := run.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			// Twice the scores, as q·k + q·K + k·Q by rows 1 where i = j, 0 where i < j, else 3.
			// Query 1: 0.5 − 0.5 + 0.25; −1 + 0.25 + 0.125; 2 + 0.25 − 0.25.
			// Query 2: 1 + 1.5 − 0.5; −2 − 1 − 0.5; 4 + 0.5 − 0.25.
			// Query 3: 1.5 + 2.25 − 0.5; −3 + 2.25 + 1; 6 − 1.5 + 1.
			both := []float32{weighed(0.25, -0.625, 2), weighed(2, -3.5, 4.25), weighed(3.25, 0.25, 5.5),
				100}
			keys := []float32{weighed(0, -0.75, 2.25), weighed(2.5, -3, 4.5), weighed(3.75, -0.75, 4.5),
				100}
			queries := []float32{weighed(0.75, -0.875, 1.75), weighed(0.5, -2.5, 3.75), weighed(1, -2, 7),
				100}
			for i, want := range [][]float32{both, keys, queries, {both[2], 100}} {
				for j, got := range floatsOf(b.Out[i]) {
					if math.Abs(float64(got-want[j])) > 1e-6*float64(want[j]) {
						t.Errorf("row %d of output %d is %g; %g expected", j, i, got, want[j])
					}
				}
			}
		})
	}
}

// weighed returns the mean of 10, 100 and 1000 by the softmax of half of the scores.
func weighed(scores ...float64) float32 {
	sum, values, value := 0.0, 0.0, 10.0
	for _, s := range scores {
		sum += math.Exp(s / 2)
		values += value * math.Exp(s/2)
		value *= 10
	}
	return float32(values / sum)
}

// Streams have the numbers of other values; what cannot be one is refused by name.
func TestStreamByHand(t *testing.T) {
	d := openTest(t, Options{})
	weight := func(kind WeightKind, k int64, data ...float32) *Weight {
		w, err := d.NewWeight(WeightSpec{Kind: kind, Compute: ComputeF32, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(data...), Rows: int64(len(data)) / k}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	word, gamma := weight(TableWeight, 2, 3, 4, 6, 8), weight(VectorWeight, 1, 1, 1)
	double := weight(LinearWeight, 2, 2, 0, 0, 2)
	record := func(body func(r *Recorder, x Value)) (*Program, error) {
		r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
		body(r, r.EmbedLayerNorm(Embedding{Word: word, Norm: NoNorm}))
		return r.End()
	}
	p, err := record(func(r *Recorder, x Value) {
		x = r.Stream(x)
		x = r.Stream(r.Linear(x, double, nil, NoAct, x))
		y, sum := r.Norm(x, NormSpec{Norm: RMSNorm, Residual: x, Gamma: gamma, Eps: 1e-12})
		r.OutputValues(r.Stream(sum))
		r.OutputValues(r.GatherRows(sum, PoolLast))
		r.OutputValues(y)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !strings.Contains(p.Describe(), "v3[tokens, 2, stream]") {
		t.Error(p.Describe())
	}
	r := NewRunner(d)
	defer r.Close()
	b := &Batch{Program: p, IDs: []int32{0, 1}, CuSeqlens: []int32{0, 2}}
	b.OutBytes[0], b.OutBytes[1], b.OutBytes[2] = 2*2*4, 2*4, 2*2*4
	if err := r.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	root := float32(math.Sqrt2)
	for i, want := range [][]float32{{18, 24, 36, 48}, {36, 48},
		{0.6 * root, 0.8 * root, 0.6 * root, 0.8 * root}} {
		if err := near(floatsOf(b.Out[i]), want); err != nil {
			t.Errorf("output %d: %v", i, err)
		}
	}
	for name, body := range map[string]func(r *Recorder, x Value){
		"x is 2, which is no result": func(r *Recorder, x Value) { r.Stream(r.Pool(x, PoolMean)) },
		"just before": func(r *Recorder, x Value) {
			r.Linear(x, double, nil, NoAct, x)
			r.Stream(x)
		},
		"a stream already": func(r *Recorder, x Value) { r.Stream(r.Stream(x)) },
		"q is a stream, which nothing updates": func(r *Recorder, x Value) {
			r.Rope(r.Stream(x), NoValue, Rotation{Heads: 1, HeadDim: 2})
		},
	} {
		p, err := record(func(r *Recorder, x Value) {
			body(r, x)
			r.OutputValues(x)
		})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if p != nil {
			p.Close()
		}
	}
}
