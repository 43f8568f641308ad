package engine

import (
	"fmt"
	"runtime"
)

// Kind is the kind of a device.
type Kind uint32

// The kinds of devices. Ref runs the reference kernels, which tests compare others with: double
// accumulation, one thread, slow.
const (
	CPU  Kind = 1
	CUDA Kind = 2
	Ref  Kind = 3
)

func (k Kind) String() string {
	return name("kind", k, map[Kind]string{CPU: "cpu", CUDA: "cuda", Ref: "ref"})
}

// ISA is a CPU instruction set. Its upper half is a family, its lower half a level of that family.
// Levels of one family ascend.
type ISA uint32

// The instruction sets. BestISA in Options sets no bound.
const (
	BestISA ISA = 0

	AVX2       = x86 + 1
	AVX512     = x86 + 2
	AVX512VNNI = x86 + 3
	AVX512BF16 = x86 + 4
	AMX        = x86 + 5

	NEON    = arm64 + 1
	NEONDot = arm64 + 2
)

const (
	x86   ISA = 1 << 16
	arm64 ISA = 2 << 16
)

// ISAs lists the instruction sets for which this build has kernels, ascending.
func ISAs() []ISA {
	if runtime.GOARCH == "arm64" {
		return []ISA{NEON, NEONDot}
	}
	return []ISA{AVX2, AVX512, AVX512VNNI, AVX512BF16, AMX}
}

// Covers reports whether a CPU of set i runs code compiled for set j. It does when both are of the
// same family and i's level is at least j's.
func (i ISA) Covers(j ISA) bool { return i>>16 == j>>16 && i >= j }

func (i ISA) String() string {
	return name("isa", i, map[ISA]string{
		BestISA: "best", AVX2: "avx2", AVX512: "avx512", AVX512VNNI: "avx512_vnni",
		AVX512BF16: "avx512_bf16", AMX: "amx",
		NEON: "neon", NEONDot: "neon_dot",
	})
}

// DType is the element type of weights and outputs.
type DType int32

// The element types. Binary is for outputs only: bit = x > 0, eight to a byte, most significant
// first.
const (
	F32    DType = 1
	F16    DType = 2
	BF16   DType = 3
	I8     DType = 4
	U8     DType = 5
	I32    DType = 6
	F8E4M3 DType = 7
	Binary DType = 8
)

func (d DType) String() string {
	return name("dtype", d, map[DType]string{
		F32:    "f32",
		F16:    "f16",
		BF16:   "bf16",
		I8:     "i8",
		U8:     "u8",
		I32:    "i32",
		F8E4M3: "f8e4m3",
		Binary: "binary",
	})
}

// RowBytes returns the bytes of n elements, or 0 for an unknown type.
func (d DType) RowBytes(n int64) int64 {
	switch d {
	case F32, I32:
		return 4 * n
	case F16, BF16:
		return 2 * n
	case I8, U8, F8E4M3:
		return n
	case Binary:
		return (n + 7) / 8
	}
	return 0
}

// Align returns the alignment, in bytes, that an output of this type needs.
func (d DType) Align() int64 { return max(1, d.RowBytes(1)) }

// Compute is the operand type of matrix products. They accumulate in float32, those of ComputeINT8
// in int32.
type Compute uint32

// The compute classes.
const (
	ComputeF32  Compute = 1
	ComputeBF16 Compute = 2
	ComputeINT8 Compute = 3
	ComputeF16  Compute = 4
	ComputeFP8  Compute = 5
)

var computeNames = map[Compute]string{
	ComputeF32: "fp32", ComputeBF16: "bf16", ComputeINT8: "int8", ComputeF16: "fp16", ComputeFP8: "fp8",
}

func (c Compute) String() string { return name("compute", c, computeNames) }

// ParseCompute reads a precision by its short or its long name. The names are fp32, bf16, int8,
// fp16, fp8, and float32, bfloat16, float16.
func ParseCompute(s string) (Compute, bool) {
	switch s {
	case "float32":
		return ComputeF32, true
	case "bfloat16":
		return ComputeBF16, true
	case "float16":
		return ComputeF16, true
	}
	for c, n := range computeNames {
		if s == n {
			return c, true
		}
	}
	return 0, false
}

// Act is an activation function.
type Act uint32

// The activation functions. GELU is the exact x·Φ(x), GELUTanh its tanh approximation.
const (
	NoAct Act = iota
	GELU
	Tanh
	GELUTanh
	ReLU
	SiLU
)

// Pooling chooses how the rows of a sequence become one row.
type Pooling uint32

// The pooling modes.
const (
	PoolCLS  Pooling = 1
	PoolMean Pooling = 2
	PoolLast Pooling = 3

	poolAttention    Pooling = 4 // Recorder.PoolAttention
	PoolWeightedMean Pooling = 5 // by place in the sequence, of kept rows too: 1, 2, … n
	PoolMax          Pooling = 6 // the largest of each column
	PoolMeanSqrt     Pooling = 7 // the sum divided by √n

	// Not on GPUs.
	PoolSum     Pooling = 8
	PoolRMS     Pooling = 9  // √ of the mean of the squares
	PoolAbsMax  Pooling = 10 // the largest size of each column
	PoolAbsMean Pooling = 11 // the mean of the sizes
)

func (p Pooling) String() string {
	return name("pooling", p, map[Pooling]string{
		PoolCLS:          "cls",
		PoolMean:         "mean",
		PoolLast:         "last",
		poolAttention:    "attention",
		PoolWeightedMean: "weighted_mean",
		PoolMax:          "max",
		PoolMeanSqrt:     "mean_sqrt",
		PoolSum:          "sum",
		PoolRMS:          "rms",
		PoolAbsMax:       "abs_max",
		PoolAbsMean:      "abs_mean",
	})
}

// Norm chooses how rows are normalised.
type Norm uint32

// The norms: by mean and variance, by the root mean square, not at all.
const (
	LayerNorm Norm = iota
	RMSNorm
	NoNorm
)

// Gate is the function of a gated linear.
type Gate uint32

// The gates: silu(gate)·up, and gelu(gate)·up with the exact gelu and with the tanh form.
const (
	SwiGLU Gate = 1 + iota
	GEGLU
	GEGLUTanh
)

// Mask chooses which keys a query sees.
type Mask uint32

// The masks.
const (
	FullMask Mask = iota
	CausalMask
	WindowMask
)

func name[T ~int32 | ~uint32](what string, v T, names map[T]string) string {
	if n, ok := names[v]; ok {
		return n
	}
	return fmt.Sprintf("%s(%d)", what, v)
}
