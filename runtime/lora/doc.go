// Package lora reads LoRA adapters (Hu 2021, arXiv:2106.09685) from directories that PEFT wrote.
// Such a directory has adapter_config.json and adapter_model.safetensors or adapter_model.bin.
//
// Entry point: [Read]. It matches the adapter's tensors to the linears of the base model and checks
// every shape, so that the result can be packed without further checks. The adapter computes y =
// W·x + B·(A·x), with the scale in B. An adapter does here what it does in PEFT, or is refused; the
// error names the key or tensor. PEFT itself ignores tensors that fit no module.
//
// Adapters are untrusted. Sizes are bounded, no code runs, and regular expressions take linear
// time. The package starts no goroutines and downloads nothing (see weights/hub).
package lora

import "fmt"

// The limits of an adapter.
const (
	MaxRank  = 512     // of a module, and of a fused linear in the kernels
	MaxBytes = 1 << 30 // of all its numbers as float32

	maxConfigBytes = 1 << 20
	maxPatterns    = 4096 // of rank_pattern and of alpha_pattern, which need at most one for each module
)

// Shape is the shape of a linear: N outputs, K inputs.
type Shape struct{ N, K int }

// Base describes the model that an adapter must fit.
type Base struct {
	// Linears are the model's linears by the architecture's names, without the prefix of the class
	// that saved the checkpoint: "encoder.layer.0.attention.self.query".
	Linears map[string]Shape
	// Unused are linears of the same model that no output depends on, such as "pooler.dense". An
	// adapter's tensors for them are ignored.
	Unused []string
	// Fixed are linears that outputs depend on and that cannot be adapted, each with the reason.
	Fixed map[string]string
}

// Pair is an adapter's part of one linear. B·A is added to the linear's weight.
type Pair struct {
	Rank  int
	Shape           // of the linear
	A, B  []float32 // [Rank, K] and [N, Rank], row-major; B includes the scale
}

// Adapter is a whole adapter. It belongs to the caller and refers to no file.
type Adapter struct {
	Pairs map[string]Pair // by the names of Base.Linears; a linear without a pair is unchanged
	Rank  int             // the largest
	Bytes int64           // of all A and B
	// the base model that the adapter names; may be empty or a path of another machine
	BaseModel string

	shapes map[string]Shape // Base.Linears
}

// Error says why an adapter cannot be used. It is permanent as long as the files do not change.
type Error struct {
	File   string // relative to the adapter's directory
	Field  string // key or tensor, may be empty
	Reason string // what was found, what is possible
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Reason
	}
	return e.File + ": " + e.Field + ": " + e.Reason
}

func refuse(file, field, format string, args ...any) error {
	return &Error{File: file, Field: field, Reason: fmt.Sprintf(format, args...)}
}
