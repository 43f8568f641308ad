//go:build native && cuda && emulated

package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// These tests run the whole GPU path: gorgonia.org/cu and csrc/cuda over the stand-in driver, with
// the kernels emulated. They share the stand-in, so none is parallel.

// command runs a command of the stand-in.
func command(t testing.TB, format string, args ...any) string {
	t.Helper()
	answer, err := StandIn(fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// openCard opens a GPU of a capability and checks, when the test ends, that nothing is left open.
func openCard(t testing.TB, capability string, o Options) *Device {
	t.Helper()
	command(t, "capability %s %d", capability, o.Ordinal)
	o.Kind = CUDA
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		nothingLeft(t)
	})
	return d
}

func nothingLeft(t testing.TB) {
	t.Helper()
	if got := command(t, "allocated"); got != "0 bytes in 0 blocks, pinned 0 bytes in 0 blocks" {
		t.Errorf("still allocated: %s", got)
	}
	if got := command(t, "handles"); got != "contexts 0 streams 0 events 0 graphs 0 execs 0" {
		t.Errorf("still open: %s", got)
	}
}

// block is one transformer block over two heads of 32 columns, with all of a model's operations
// except the gelu.
type block struct {
	program *Program
	weights []*Weight
}

const blockColumns, blockVocabulary = 64, 50

// newBlock packs and records a block. After an error everything is undone.
func newBlock(d *Device, compute Compute, caps Caps) (m *block, err error) {
	m = &block{}
	defer func() {
		if err != nil {
			m.close()
			m = nil
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	weight := func(kind WeightKind, rows, k int64, scale, offset float64) *Weight {
		if err != nil {
			return nil
		}
		values := make([]float32, rows*k)
		for i := range values {
			values[i] = float32(rng.NormFloat64()*scale + offset)
		}
		var w *Weight
		w, err = d.NewWeight(WeightSpec{Kind: kind, Compute: compute, DType: F32, K: k, Parts: []Part{
			{Data: bytesOf(values...), Rows: rows},
		}})
		if err == nil {
			m.weights = append(m.weights, w)
		}
		return w
	}
	const c = blockColumns
	word := weight(TableWeight, blockVocabulary, c, 1, 0)
	gamma, beta := weight(VectorWeight, c, 1, 0.2, 1), weight(VectorWeight, c, 1, 0.1, 0)
	qkv, out := weight(LinearWeight, 3*c, c, 0.12, 0), weight(LinearWeight, c, c, 0.12, 0)
	if err != nil {
		return m, err
	}
	r := d.Record(caps)
	x := r.EmbedLayerNorm(Embedding{Word: word, Gamma: gamma, Beta: beta, Eps: 1e-12})
	y := r.Linear(x, qkv, nil, NoAct, NoValue)
	a := r.Attention(r.Columns(y, 0, c), r.Columns(y, c, c), r.Columns(y, 2*c, c),
		Attention{Heads: 2, KVHeads: 2, HeadDim: 32, Scale: float32(1 / math.Sqrt(32))})
	r.OutputRows(r.Pool(r.LayerNorm(r.Linear(a, out, nil, NoAct, x), gamma, beta, 1e-12), PoolMean))
	m.program, err = r.End()
	return m, err
}

func (m *block) close() {
	if m.program != nil {
		m.program.Close()
	}
	for _, w := range m.weights {
		w.Close()
	}
}

// texts returns sequences of the given lengths. The ids of a text depend only on its number.
func texts(p *Program, lengths ...int) *Batch {
	b := &Batch{Program: p, CuSeqlens: []int32{0}}
	for number, n := range lengths {
		rng := rand.New(rand.NewPCG(uint64(number), uint64(n)))
		for range n {
			b.IDs = append(b.IDs, rng.Int32N(blockVocabulary))
		}
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		b.Items[0] = append(b.Items[0],
			OutItem{DType: F32, Normalize: true, Offset: int64(4 * blockColumns * number)})
	}
	b.OutBytes[0] = int64(4 * blockColumns * len(lengths))
	return b
}

func run(r *Runner, b *Batch) ([]float32, error) {
	if err := r.Run(context.Background(), b); err != nil {
		return nil, err
	}
	return floatsOf(b.Out[0]), nil
}

// wantRows runs the same block on the CPU in fp32.
func wantRows(t *testing.T, caps Caps, lengths ...int) []float32 {
	t.Helper()
	d := openTest(t, Options{Threads: 1})
	m, err := newBlock(d, ComputeF32, caps)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(d)
	t.Cleanup(func() { r.Close(); m.close() })
	rows, err := run(r, texts(m.program, lengths...))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// sameDirection compares rows of length 1.
func sameDirection(t *testing.T, got, want []float32, least float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, expected %d", len(got), len(want))
	}
	for at := 0; at < len(want); at += blockColumns {
		dot, norm := 0.0, 0.0
		for i := at; i < at+blockColumns; i++ {
			dot += float64(got[i]) * float64(want[i])
			norm += float64(got[i]) * float64(got[i])
		}
		if !(dot >= least) || math.Abs(math.Sqrt(norm)-1) > 1e-4 {
			t.Errorf("row %d: cosine %v, norm %v", at/blockColumns, dot, math.Sqrt(norm))
		}
	}
}

var blockCaps = Caps{MaxTokens: 256, MaxSeqs: 16, MaxLen: 128}

func TestGPUAgreesWithTheCPU(t *testing.T) {
	lengths := []int{1, 7, 33, 64, 5}
	want := wantRows(t, blockCaps, lengths...)
	for _, c := range []struct {
		capability string
		compute    Compute
		least      float64
	}{{"8.0", ComputeBF16, 0.9995}, {"8.6", ComputeF16, 0.9999}, {"8.9", ComputeFP8, 0.99},
		{"9.0", ComputeBF16, 0.9995}, {"9.0", ComputeFP8, 0.99}} {
		t.Run(c.capability+" "+c.compute.String(), func(t *testing.T) {
			d := openCard(t, c.capability, Options{})
			m, err := newBlock(d, c.compute, blockCaps)
			if err != nil {
				t.Fatal(err)
			}
			r := NewRunner(d)
			defer func() { r.Close(); m.close() }()
			got, err := run(r, texts(m.program, lengths...))
			if err != nil {
				t.Fatal(err)
			}
			sameDirection(t, got, want, c.least)
		})
	}
}

func TestGPUManyCallersTwoInFlight(t *testing.T) {
	d := openCard(t, "9.0", Options{})
	command(t, "delay 20000")
	defer command(t, "delay 100")
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(d)
	defer func() { r.Close(); m.close() }()
	kinds := [][]int{{3}, {9, 4}, {64, 1, 2}, {100, 60}, {12, 12, 12, 12}, {31}}
	var want [][]float32
	for _, lengths := range kinds {
		rows, err := run(r, texts(m.program, lengths...))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, rows)
	}
	before := command(t, "allocated")
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := range 12 {
				k := (caller + i) % len(kinds)
				got, err := run(r, texts(m.program, kinds[k]...))
				if err != nil || !slices.Equal(got, want[k]) {
					t.Errorf("batch %v: %v, the same bits: %v", kinds[k], err, slices.Equal(got, want[k]))
				}
			}
		})
	}
	// A model loads meanwhile: its uploads are jobs between batches.
	other, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	other.close()
	callers.Wait()
	if after := command(t, "allocated"); after != before {
		t.Errorf("%s allocated before 48 batches, %s after", before, after)
	}
}

func TestGPUBatchInvariance(t *testing.T) {
	d := openCard(t, "9.0", Options{})
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(d)
	defer func() { r.Close(); m.close() }()
	lengths := []int{12, 1, 40, 33, 65}
	together, err := run(r, texts(m.program, lengths...))
	if err != nil {
		t.Fatal(err)
	}
	whole := texts(m.program, lengths...)
	for i, n := range lengths {
		one := &Batch{
			Program:   m.program,
			IDs:       whole.IDs[whole.CuSeqlens[i]:whole.CuSeqlens[i+1]],
			CuSeqlens: []int32{0, int32(n)},
			Items:     [MaxOutputs][]OutItem{{{DType: F32, Normalize: true}}},
		}
		one.OutBytes[0] = 4 * blockColumns
		for time := range 3 { // launched, captured, replayed
			alone, err := run(r, one)
			if err != nil || !slices.Equal(alone, together[i*blockColumns:(i+1)*blockColumns]) {
				t.Errorf("text %d of %d tokens differs alone, time %d (%v)", i, n, time, err)
			}
		}
	}
}

func TestFindGPUs(t *testing.T) {
	command(t, "capability 9.0")
	r := FindGPUs()
	if !r.Built || r.Problem != "" || r.Driver != "13.0" || len(r.GPUs) != 1 || r.GPUs[0].Refusal != "" {
		t.Fatalf("%+v", r)
	}
	for _, c := range []struct{ command, undo, want string }{
		{"capability 7.5", "capability 9.0", "8.0 or newer"},
		{"driver 12080", "driver 13000", "580"},
	} {
		command(t, "%s", c.command)
		r := FindGPUs()
		if len(r.GPUs) != 1 || !strings.Contains(r.GPUs[0].Refusal, c.want) {
			t.Errorf("%s: %+v", c.command, r)
		}
		if _, err := Open(Options{Kind: CUDA}); !errors.Is(err, ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: opened, or %v", c.command, err)
		}
		command(t, "%s", c.undo)
	}
	if _, err := Open(Options{Kind: CUDA, Ordinal: 3}); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "cuda:3") {
		t.Errorf("a card that is not there: %v", err)
	}
}

func TestTwoGPUs(t *testing.T) {
	command(t, "devices 2")
	t.Cleanup(func() { command(t, "devices 1") }) // after the GPUs are closed
	first := openCard(t, "9.0", Options{})
	second, err := Open(Options{Kind: CUDA, Ordinal: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var rows [2][]float32
	for i, d := range []*Device{first, second} {
		m, err := newBlock(d, ComputeBF16, blockCaps)
		if err != nil {
			t.Fatal(err)
		}
		r := NewRunner(d)
		defer func() { r.Close(); m.close() }()
		if rows[i], err = run(r, texts(m.program, 9, 30)); err != nil {
			t.Fatal(err)
		}
		if info, err := d.Info(); err != nil || info.Ordinal != i || info.Capability != "9.0" ||
			info.Driver != "13.0" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if !slices.Equal(rows[0], rows[1]) {
		t.Error("two equal cards give different bits")
	}
}

// The second Runner of a GPU is not its owner and passes every call to it. After the first Runner
// has closed, the GPU's own goroutine serves the second.
func TestTwoRunnersOfAGPU(t *testing.T) {
	d := openCard(t, "9.0", Options{})
	m, err := newBlock(d, ComputeBF16, blockCaps)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	first, second := NewRunner(d), NewRunner(d)
	defer second.Close()
	want, err := run(first, texts(m.program, 9))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := run(second, texts(m.program, 9)); err != nil || !slices.Equal(got, want) {
			t.Errorf("the second runner: %v", err)
		}
		first.Close()
	}
}
