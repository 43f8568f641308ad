package arch

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// gatedTensors are tensors of a gated linear of n columns from k in each published form, with a
// table of words [2, k].
func gatedTensors(n, k int64) (word, gate, up, gateBias, upBias []float32, file []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(count int64) []float32 {
		out := make([]float32, count)
		for i := range out {
			out[i] = float32(rng.NormFloat64() / math.Sqrt(float64(k)) * 2)
		}
		return out
	}
	word, gate, up, gateBias, upBias = random(2*k), random(n*k), random(n*k), random(n), random(n)
	tensor := func(name string, rows int64, values ...float32) weightstest.Tensor {
		return weightstest.Float32(name, []int64{rows, k}, values...)
	}
	vector := func(name string, values ...float32) weightstest.Tensor {
		return weightstest.Float32(name, []int64{int64(len(values))}, values...)
	}
	return word, gate, up, gateBias, upBias, weightstest.Encode(nil,
		tensor("word", 2, word...), tensor("gate.w", n, gate...), tensor("up.w", n, up...),
		vector("gate.b", gateBias...), vector("up.b", upBias...),
		tensor("gate_up.w", 2*n, slices.Concat(gate, up)...),
		vector("gate_up.b", slices.Concat(gateBias, upBias)...),
		tensor("up_gate.w", 2*n, slices.Concat(up, gate)...),
		vector("up_gate.b", slices.Concat(upBias, gateBias)...))
}

// A gated linear gives the same numbers from two tensors, and from one with either half first. A
// tensor with both halves, larger than the buffer grows by, is read once: a second time it would
// not fit.
func TestGatedHalves(t *testing.T) {
	const n, k = 700, 512
	word, gate, up, gateBias, upBias, file := gatedTensors(n, k)
	var want []float32
	for id := range int64(2) {
		for j := range int64(n) {
			z, y := float64(gateBias[j]), float64(upBias[j])
			for i := range int64(k) {
				z += float64(word[id*k+i]) * float64(gate[j*k+i])
				y += float64(word[id*k+i]) * float64(up[j*k+i])
			}
			want = append(want, float32(z*0.5*(1+math.Erf(z/math.Sqrt2))*y))
		}
	}
	dir := t.TempDir()
	weightstest.WriteFile(t, dir, "model.safetensors", file)
	for name, from := range map[string]struct{ gate, up gateHalf }{
		"two tensors": {gateHalf{"gate.", 0}, gateHalf{"up.", 0}},
		"gate first":  {gateHalf{"gate_up.", 0}, gateHalf{"gate_up.", n}},
		"gate last":   {gateHalf{"up_gate.", n}, gateHalf{"up_gate.", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, engine.Options{})
			p := gatedPacker(t, dev, dir)
			of := func(half gateHalf, kind string) gateHalf { return gateHalf{half.name + kind, half.first} }
			table := p.table(2, k, "word")
			w := p.gated(n, k, of(from.gate, "w"), of(from.up, "w"))
			b := p.gatedBias(n, of(from.gate, "b"), of(from.up, "b"))
			if p.err != nil {
				t.Fatal(p.err)
			}
			r := dev.Record(engine.Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
			x := r.EmbedLayerNorm(engine.Embedding{Word: table, Norm: engine.NoNorm})
			r.OutputValues(r.GatedLinear(x, w, b, engine.GEGLU, engine.NoValue))
			program, err := r.End()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(program.Close)
			runner := engine.NewRunner(dev)
			t.Cleanup(runner.Close)
			run := engine.Batch{Program: program, IDs: []int32{0, 1}, CuSeqlens: []int32{0, 2}}
			run.OutBytes[0] = 2 * n * 4
			if err := runner.Run(context.Background(), &run); err != nil {
				t.Fatal(err)
			}
			for i, v := range floats(run.Out[0]) {
				if math.Abs(float64(v-want[i])) > 1e-5 {
					t.Fatalf("column %d of row %d is %v, expected %v", i%n, i/n, v, want[i])
				}
			}
		})
	}
}

// gatedPacker opens the checkpoint in dir for float32.
func gatedPacker(t *testing.T, dev *engine.Device, dir string) *packer {
	checkpoint, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := &packer{dev: dev, from: checkpoint, file: checkpoint.Name(), compute: engine.ComputeF32,
		buffer: new(weights.Buffer)}
	t.Cleanup(func() {
		p.close()
		p.buffer.Close()
		_ = checkpoint.Close()
	})
	return p
}

// Halves of another shape are refused with both shapes.
func TestGatedHalvesAreRefused(t *testing.T) {
	_, _, _, _, _, file := gatedTensors(4, 8)
	dir := t.TempDir()
	weightstest.WriteFile(t, dir, "model.safetensors", file)
	for _, bad := range []struct {
		gate, up gateHalf
		says     string
	}{
		{gateHalf{"gate.w", 0}, gateHalf{"gate.w", 4},
			"gate.w: has shape [4 8]; the configuration asks for [8 8]"},
		{gateHalf{"gate_up.w", 0}, gateHalf{"up.w", 0},
			"gate_up.w: has shape [8 8]; the configuration asks for [4 8]"},
		{gateHalf{"gate.w", 0}, gateHalf{"fc.w", 0}, "fc.w: no such tensor"},
	} {
		p := gatedPacker(t, open(t, engine.Options{}), dir)
		if w := p.gated(4, 8, bad.gate, bad.up); w != nil || p.err == nil ||
			!strings.Contains(p.err.Error(), bad.says) {
			t.Errorf("%v and %v: %v; %q was expected", bad.gate, bad.up, p.err, bad.says)
		}
	}
}

// The rows of an adapter's B are brought into the order in which the linear was packed.
func TestInterleavedAdapters(t *testing.T) {
	b := []float32{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51} // rows 0 to 5 of rank 2
	for _, c := range []struct {
		halves halves
		want   []float32
	}{
		{halves{0, 3}, []float32{0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51}},
		{halves{3, 0}, []float32{30, 31, 0, 1, 40, 41, 10, 11, 50, 51, 20, 21}},
	} {
		if got := c.halves.interleave(b, 2); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, expected %v", c.halves, got, c.want)
		}
	}
}
