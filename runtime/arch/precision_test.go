package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// checkpoint has a matrix of 64 elements, another of 32 and a vector of 8, in these types.
func checkpoint(t *testing.T, matrix, other, vector weights.DType) *weights.Checkpoint {
	t.Helper()
	tensor := func(name string, d weights.DType, shape ...int64) weightstest.Tensor {
		n := d.Bits() / 8
		for _, s := range shape {
			n *= s
		}
		return weightstest.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, n)}
	}
	path := weightstest.WriteFile(t, t.TempDir(), weights.SingleFile, weightstest.Encode(nil,
		tensor("a", matrix, 8, 8), tensor("b", other, 4, 8), tensor("c", vector, 8)))
	c, err := weights.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A GPU runs a checkpoint in fp16 as fp16 and everything else in bf16. A CPU does not look at the
// checkpoint.
func TestDefaultCompute(t *testing.T) {
	gpu := engine.Info{
		Kind: engine.CUDA, Compute: []engine.Compute{engine.ComputeBF16, engine.ComputeF16,
			engine.ComputeFP8},
	}
	cpu := engine.Info{
		Kind: engine.CPU, Compute: []engine.Compute{engine.ComputeF32, engine.ComputeBF16, engine.ComputeF16},
	}
	for name, c := range map[string]struct {
		matrix, other, vector weights.DType
		want                  engine.Compute
	}{
		"float32":                          {weights.F32, weights.F32, weights.F32, engine.ComputeBF16},
		"bfloat16":                         {weights.BF16, weights.BF16, weights.BF16, engine.ComputeBF16},
		"float16":                          {weights.F16, weights.F16, weights.F16, engine.ComputeF16},
		"float16 with vectors in float32":  {weights.F16, weights.F16, weights.F32, engine.ComputeF16},
		"most in float16":                  {weights.F16, weights.F32, weights.F32, engine.ComputeF16},
		"a small part of it is in float16": {weights.F32, weights.F16, weights.F16, engine.ComputeBF16},
	} {
		from := checkpoint(t, c.matrix, c.other, c.vector)
		if got := defaultCompute(gpu, from); got != c.want {
			t.Errorf("%s: %v on a GPU, want %v", name, got, c.want)
		}
		if got := defaultCompute(cpu, from); got != engine.ComputeF32 {
			t.Errorf("%s: %v on a CPU", name, got)
		}
	}
	only := engine.Info{Kind: engine.CUDA, Compute: []engine.Compute{engine.ComputeBF16}}
	if got := defaultCompute(only,
		checkpoint(t, weights.F16, weights.F16, weights.F16)); got != engine.ComputeBF16 {
		t.Errorf("%v on a GPU without fp16", got)
	}
}

func TestClassAfterAttention(t *testing.T) {
	for _, c := range []engine.Compute{
		engine.ComputeF32, engine.ComputeBF16, engine.ComputeF16, engine.ComputeINT8,
	} {
		if afterAttention(c) != c {
			t.Errorf("%v becomes %v", c, afterAttention(c))
		}
	}
	if got := afterAttention(engine.ComputeFP8); got != engine.ComputeBF16 {
		t.Errorf("fp8 becomes %v, want bf16", got)
	}
}

// The estimate of the packed weights is within a tenth of what loading packs. An empty directory
// has no estimate.
func TestSizeOfAModel(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, name := range []string{"bert-erf-h128", "albert-groups", "st-xlmr-mean-torch"} {
		dir := golden.Open(t, name).Dir
		m, _ := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
		got, err := SizeOf(dir, dev, Options{Task: Embed, Compute: engine.ComputeF32})
		if err != nil || got.Packed < m.Bytes()*9/10 || got.Packed > m.Bytes()*11/10 {
			t.Errorf("%s: estimate %+v, %v; packed %d", name, got, err, m.Bytes())
		}
	}
	if _, err := SizeOf(t.TempDir(), dev, Options{Task: Embed}); err == nil {
		t.Error("an empty directory has a size")
	}
}

// Packing counts the weights so far and the buffer that tensors are read into. The buffer does not
// shrink for a smaller tensor, and the largest tensor is not always the last.
func TestSizing(t *testing.T) {
	const mib = 1 << 20
	linear := func(c engine.Compute, k int64) engine.WeightSpec {
		return engine.WeightSpec{Kind: engine.LinearWeight, Compute: c, K: k}
	}
	var s sizing
	for i, step := range []struct {
		spec         engine.WeightSpec
		rows, bytes  int64
		packed, peak int64 // expected after the step
	}{
		{engine.WeightSpec{Kind: engine.TableWeight, Compute: engine.ComputeBF16, K: 1024}, 250 << 10,
			1000 * mib, 500 * mib, 1500 * mib},
		// a new buffer of 12 MiB
		{linear(engine.ComputeBF16, 1024), 3 << 10, 12 * mib, 506 * mib, 1500 * mib},
		// 16 MiB
		{linear(engine.ComputeF32, 1024), 4 << 10, 16*mib - 1, 522 * mib, 1500 * mib},
		// the same buffer
		{engine.WeightSpec{Kind: engine.VectorWeight, Compute: engine.ComputeBF16, K: 1}, mib / 4, mib,
			523 * mib, 1500 * mib},
		{linear(engine.ComputeF32, 1<<20), 978, 3912 * mib, 4435 * mib, 8347 * mib},
		// as large as before
		{engine.WeightSpec{Kind: engine.TableWeight, Compute: engine.ComputeINT8, K: 1024}, 1 << 10,
			979 * mib, 4437 * mib, 8349 * mib},
		{linear(engine.ComputeINT8, 1016), 1 << 10, 4 * mib, 4438 * mib, 8349 * mib},
	} {
		s.read(step.spec, step.rows, step.bytes)
		if s.packed != step.packed || s.peak != step.peak {
			t.Errorf("step %d: packed %d, at most %d; want %d and %d",
				i, s.packed, s.peak, step.packed, step.peak)
		}
	}
	s.add(mib, 6000*mib)
	if s.packed != 4439*mib || s.peak != 10443*mib {
		t.Errorf("from memory of its own: packed %d, at most %d", s.packed, s.peak)
	}
}

// For each task the estimate is near what loading packs, a decoder that shares the table of words
// included.
func TestSizeOfHeads(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, c := range []struct {
		name string
		task Task
	}{{"classify-bert", Classify}, {"tag-bert", Tag}, {"splade-bert", Splade}, {"colbert-linear", ColBERT},
		{"st-mean-dense-tanh-normalize-prompts", Embed}, {"bge-m3", BGEM3}} {
		dir := golden.Open(t, c.name).Dir
		m, err := Load(dir, dev, Options{Task: c.task, Compute: engine.ComputeF32})
		if err != nil {
			t.Error(c.name, err)
			continue
		}
		got, err := SizeOf(dir, dev, Options{Task: c.task, Compute: engine.ComputeF32})
		if err != nil || got.Packed < m.Bytes()*8/10 || got.Packed > m.Bytes()*11/10 || got.Passing < 1<<20 {
			t.Errorf("%s: %+v, %v; packed %d", c.name, got, err, m.Bytes())
		}
		m.Close()
	}
}
