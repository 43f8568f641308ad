package arch

import (
	"os"
	"path/filepath"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// tensors is what is asked of a checkpoint as a whole: *weights.Checkpoint.
type tensors interface {
	Names() []string
	Tensor(name string) (weights.Tensor, bool)
}

// defaultCompute is the class of a model that nobody chose one for: fp16 on a GPU when most of the checkpoint is fp16,
// because its authors ran it so and bf16 would round it again; else the device's default.
func defaultCompute(info engine.Info, from tensors) engine.Compute {
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

// afterAttention is the class of the matrix that reads what attention wrote, in a model of class c. In fp8 it is bf16: fp8
// activations are scaled per row by the operation that writes them, attention writes heads and sees no row, and this matrix
// is the smallest of a block.
func afterAttention(c engine.Compute) engine.Compute {
	if c == engine.ComputeFP8 {
		return engine.ComputeBF16
	}
	return c
}

// PackedBytes estimates what Load of dir takes on a device of that description, to within a few percent when the model
// uses all its tensors: matrices in the operand type, vectors in float32. Files of modules after the encoder are left out.
func PackedBytes(dir string, info engine.Info, c engine.Compute) (int64, error) {
	encoderDir, err := encoderFolder(os.DirFS(dir))
	if err != nil {
		return 0, err
	}
	checkpoint, err := weights.Open(filepath.Join(dir, filepath.FromSlash(encoderDir)))
	if err != nil {
		return 0, err
	}
	defer checkpoint.Close()
	if c == 0 {
		c = defaultCompute(info, checkpoint)
	}
	return packedBytes(checkpoint, c), nil
}

func packedBytes(from tensors, c engine.Compute) int64 {
	width := int64(2)
	switch c {
	case engine.ComputeF32:
		width = 4
	case engine.ComputeINT8, engine.ComputeFP8:
		width = 1
	}
	var sum int64
	for _, name := range from.Names() {
		t, _ := from.Tensor(name)
		if len(t.Shape) < 2 {
			sum += 4 * t.Elements()
		} else {
			sum += width * t.Elements()
		}
	}
	return sum
}
