package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// decoder is one causal block of attention with a program for texts and one for their prefixes.
type decoder struct {
	weights         []*Weight
	texts, prefixes *Program
}

const decoderVocabulary, decoderRows = 40, 96

// newDecoder packs and records a decoder. After an error everything is undone.
func newDecoder(d *Device, compute Compute) (m *decoder, err error) {
	m = &decoder{}
	defer func() {
		if err != nil {
			m.close()
			m = nil
		}
	}()
	rng := rand.New(rand.NewPCG(7, 8))
	weight := func(kind WeightKind, rows, k int64, scale float64) *Weight {
		if err != nil {
			return nil
		}
		values := make([]float32, rows*k)
		for i := range values {
			values[i] = float32(rng.NormFloat64() * scale)
		}
		var w *Weight
		w, err = d.NewWeight(WeightSpec{Kind: kind, Compute: compute, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(values...), Rows: rows}}})
		if err == nil {
			m.weights = append(m.weights, w)
		}
		return w
	}
	const c = 32
	word, gamma := weight(TableWeight, decoderVocabulary, c, 1), weight(VectorWeight, c, 1, 1)
	qkv := weight(LinearWeight, 3*c, c, 0.3)
	if err != nil {
		return m, err
	}
	record := func(prefix bool) (*Program, error) {
		caps := Caps{MaxTokens: 512, MaxSeqs: 40, MaxLen: 200, MaxStateRows: decoderRows}
		if prefix {
			caps.MaxTokens, caps.MaxLen = decoderRows, decoderRows
		}
		r := d.Record(caps)
		x := r.EmbedLayerNorm(Embedding{Word: word, Gamma: gamma, Eps: 1e-6})
		y := r.Linear(x, qkv, nil, NoAct, NoValue)
		if prefix {
			r.StateRows(r.Columns(y, c, 2*c), 1)
			return r.End()
		}
		a := r.Attention(r.Columns(y, 0, c), r.Columns(y, c, c), r.Columns(y, 2*c, c),
			Attention{Mask: CausalMask, Heads: 1, KVHeads: 1, HeadDim: c, Segment: 1})
		r.OutputValues(r.Pool(a, PoolLast))
		return r.End()
	}
	if m.texts, err = record(false); err == nil {
		m.prefixes, err = record(true)
	}
	return m, err
}

func (m *decoder) close() {
	for _, p := range []*Program{m.texts, m.prefixes} {
		if p != nil {
			p.Close()
		}
	}
	for _, w := range m.weights {
		w.Close()
	}
}

// pair returns random texts behind random prefixes, and the same texts with the prefixes as their
// own tokens.
func (m *decoder) pair(rng *rand.Rand, n int) (shared, whole *Batch) {
	ids := func(most int) []int32 {
		out := make([]int32, 1+rng.IntN(most))
		for i := range out {
			out[i] = rng.Int32N(decoderVocabulary)
		}
		return out
	}
	prefix := &Batch{Program: m.prefixes, CuSeqlens: []int32{0}}
	for range 1 + rng.IntN(4) {
		prefix.IDs = append(prefix.IDs, ids(decoderRows/4)...)
		prefix.CuSeqlens = append(prefix.CuSeqlens, int32(len(prefix.IDs)))
	}
	shared = &Batch{Program: m.texts, CuSeqlens: []int32{0}, Prefix: prefix}
	whole = &Batch{Program: m.texts, CuSeqlens: []int32{0}}
	for range n {
		first, end := int32(0), int32(0)
		if of := rng.IntN(len(prefix.CuSeqlens)); of > 0 {
			first, end = prefix.CuSeqlens[of-1], prefix.CuSeqlens[of]
		}
		own := ids(10)
		shared.IDs = append(shared.IDs, own...)
		shared.CuSeqlens = append(shared.CuSeqlens, int32(len(shared.IDs)))
		shared.PrefixFirst = append(shared.PrefixFirst, first)
		shared.PrefixRows = append(shared.PrefixRows, end-first)
		whole.IDs = append(append(whole.IDs, prefix.IDs[first:end]...), own...)
		whole.CuSeqlens = append(whole.CuSeqlens, int32(len(whole.IDs)))
	}
	shared.OutBytes[0], whole.OutBytes[0] = int64(n*32*4), int64(n*32*4)
	return shared, whole
}

// compare runs random batches both ways.
func (m *decoder) compare(r *Runner, rng *rand.Rand, rounds int) error {
	for range rounds {
		shared, whole := m.pair(rng, 1+rng.IntN(12))
		for _, b := range []*Batch{shared, whole} {
			if err := r.Run(context.Background(), b); err != nil {
				return err
			}
		}
		if !slices.Equal(shared.Out[0], whole.Out[0]) {
			return fmt.Errorf("shared prefixes change bits: %d texts, %d prefixes",
				len(shared.PrefixRows), len(shared.Prefix.CuSeqlens)-1)
		}
	}
	return nil
}

// Many callers at once: each batch reads the prefixes of its own. Afterwards the Runner has the
// states that it said it would need; Shrink gives them up, and the next batch makes new ones.
func TestRunnerPrefixes(t *testing.T) {
	d, r := newTestRunner(t, 3)
	m, err := newDecoder(d, ComputeF32)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	need := m.texts.Footprint(64 << 10).With(m.prefixes.Footprint())
	grows, _ := r.Growth(need)
	var wg sync.WaitGroup
	for caller := range 6 {
		wg.Go(func() {
			if err := m.compare(r, rand.New(rand.NewPCG(9, uint64(caller))), 40); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	has := r.Stats()
	if got := has.ArenaBytes + has.SlotBytes + has.StateBytes; got > grows {
		t.Errorf("the Runner has %d bytes, %d were foreseen", got, grows)
	}
	if has.StateBytes == 0 || has.StateBytes > 2*m.prefixes.StateBytes() {
		t.Errorf("states of %d bytes, each of %d", has.StateBytes, m.prefixes.StateBytes())
	}
	r.Shrink(Footprint{})
	if s := r.Stats(); s.StateBytes != 0 || s.ArenaBytes != 0 {
		t.Errorf("after shrinking: %+v", s)
	}
	if err := m.compare(r, rand.New(rand.NewPCG(10, 1)), 3); err != nil {
		t.Error(err)
	}
}

// What a batch with prefixes does wrong is refused, and the Runner serves the next batch.
func TestBadPrefixes(t *testing.T) {
	d, r := newTestRunner(t, 2)
	m, err := newDecoder(d, ComputeF32)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	rng := rand.New(rand.NewPCG(11, 12))
	for name, change := range map[string]func(b *Batch){
		"no program":           func(b *Batch) { b.Prefix.Program = nil },
		"a program that reads": func(b *Batch) { b.Prefix.Program = m.texts },
		"no prefixes":          func(b *Batch) { b.Prefix = nil; b.PrefixRows[0] = 1 },
		"an id of no word":     func(b *Batch) { b.Prefix.IDs[0] = decoderVocabulary },
		"rows that are not there": func(b *Batch) {
			b.PrefixFirst[0], b.PrefixRows[0] = decoderRows-1, 1
		},
		"rows of no state": func(b *Batch) { b.PrefixFirst[0], b.PrefixRows[0] = decoderRows, 1 },
		"rows below 0":     func(b *Batch) { b.PrefixRows[0] = -1 },
		"too few rows":     func(b *Batch) { b.PrefixRows = b.PrefixRows[1:] },
		"too few firsts":   func(b *Batch) { b.PrefixFirst = b.PrefixFirst[1:] },
		"more prefixes than the state": func(b *Batch) {
			b.Prefix.IDs, b.Prefix.CuSeqlens = make([]int32, 97), []int32{0, 97}
		},
	} {
		b, _ := m.pair(rng, 5)
		change(b)
		if err := r.Run(context.Background(), b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := m.compare(r, rng, 2); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}
