package arch

import (
	"math"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// defaultCompute returns the class of a model for which none was chosen. It is fp16 on a GPU when
// most of the checkpoint is fp16, because its authors ran it so and bf16 would round it again; else
// it is the device's default.
func defaultCompute(info engine.Info, from Checkpoint) engine.Compute {
	if info.Kind != engine.CUDA || !info.Supports(engine.ComputeF16) {
		return info.DefaultCompute()
	}
	var half, all int64
	for _, name := range from.Names() {
		t, _ := from.Tensor(name)
		all += t.Elements()
		if t.DType == weights.F16 {
			half += t.Elements()
		}
	}
	if 2*half > all {
		return engine.ComputeF16
	}
	return info.DefaultCompute()
}

// afterAttention returns the class of the matrix that reads attention's output, in a model of class
// c. For fp8 it is bf16: fp8 activations are scaled per row by the operation that writes them,
// attention writes heads and sees no row, and this matrix is the smallest of a block.
func afterAttention(c engine.Compute) engine.Compute {
	if c == engine.ComputeFP8 {
		return engine.ComputeBF16
	}
	return c
}

// avoidF16 is for architectures whose values overflow in fp16. It makes the class bf16 if it was
// chosen for the checkpoint's type, and refuses an fp16 that was asked for. why completes the
// sentence.
func (p *packer) avoidF16(why string) error {
	switch {
	case p.compute != engine.ComputeF16:
		return nil
	case p.asked:
		return refuse(configFile, "model_type",
			"precision fp16 overflows in this architecture: %s; bf16, fp32 and int8 or fp8 are possible, where the device has them",
			why)
	}
	p.compute = engine.ComputeBF16
	return nil
}

// roundBF16 rounds x to the nearest bf16, of two the even one. x is finite.
func roundBF16(x float32) float32 {
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}
