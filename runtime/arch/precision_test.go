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

// A GPU runs a checkpoint in fp16 as fp16 and everything else in bf16; a CPU never asks.
func TestDefaultCompute(t *testing.T) {
	gpu := engine.Info{Kind: engine.CUDA, Compute: []engine.Compute{engine.ComputeBF16, engine.ComputeF16, engine.ComputeFP8}}
	cpu := engine.Info{Kind: engine.CPU, Compute: []engine.Compute{engine.ComputeF32, engine.ComputeBF16, engine.ComputeF16}}
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
	if got := defaultCompute(only, checkpoint(t, weights.F16, weights.F16, weights.F16)); got != engine.ComputeBF16 {
		t.Errorf("%v on a GPU without fp16", got)
	}
}

func TestClassAfterAttention(t *testing.T) {
	for _, c := range []engine.Compute{engine.ComputeF32, engine.ComputeBF16, engine.ComputeF16, engine.ComputeINT8} {
		if afterAttention(c) != c {
			t.Errorf("%v becomes %v", c, afterAttention(c))
		}
	}
	if got := afterAttention(engine.ComputeFP8); got != engine.ComputeBF16 {
		t.Errorf("fp8 becomes %v, want bf16", got)
	}
}

func TestPackedBytes(t *testing.T) {
	from := checkpoint(t, weights.F32, weights.F16, weights.F16)
	for c, want := range map[engine.Compute]int64{engine.ComputeF32: 4*96 + 32, engine.ComputeBF16: 2*96 + 32,
		engine.ComputeF16: 2*96 + 32, engine.ComputeFP8: 96 + 32, engine.ComputeINT8: 96 + 32} {
		if got := packedBytes(from, c); got != want {
			t.Errorf("%v: %d bytes, want %d", c, got, want)
		}
	}
}

// The estimate is near what loading takes, on a model whose sizes need little padding.
func TestPackedBytesOfAModel(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	info, err := dev.Info()
	if err != nil {
		t.Fatal(err)
	}
	dir := golden.Open(t, "bert-erf-h128").Dir
	m, _ := load(t, dev, dir, Options{Compute: engine.ComputeF32})
	got, err := PackedBytes(dir, info, engine.ComputeF32)
	if err != nil || got < m.Bytes()*9/10 || got > m.Bytes()*11/10 {
		t.Errorf("estimate %d, %v; packed %d", got, err, m.Bytes())
	}
	if _, err := PackedBytes(t.TempDir(), info, 0); err == nil {
		t.Error("an empty directory has an estimate")
	}
}
