// Package lora reads LoRA adapters (Hu 2021, arXiv:2106.09685) from directories that PEFT wrote:
// adapter_config.json and adapter_model.safetensors or adapter_model.bin.
//
// Entry point: [Read]. It matches the adapter's tensors to the linears of the base model and checks
// every shape, so that what it returns can be packed as it is: y = W·x + B·(A·x), the scale in B.
// An adapter does here what it does in PEFT, or is refused by the name of the key or tensor that
// asks for something else; PEFT itself passes over tensors that fit nowhere.
//
// Adapters are untrusted. Sizes are bounded, no code runs, and regular expressions take linear
// time. The package starts no goroutines and downloads nothing (see weights/hub).
package lora

import "fmt"

// The limits of an adapter.
const (
	MaxRank  = 512     // of a module, and of the kernels for a fused linear
	MaxBytes = 1 << 30 // of all its numbers as float32

	maxConfigBytes = 1 << 20
	maxPatterns    = 4096 // of rank_pattern and of alpha_pattern: a name for each module at most
)

// Shape is that of a linear: N outputs, K inputs.
type Shape struct{ N, K int }

// Base is what an adapter must fit.
type Base struct {
	// Linears are the model's linears by the names that its architecture has for them, without the
	// prefix of the class that saved the checkpoint: "encoder.layer.0.attention.self.query".
	Linears map[string]Shape
	// Unused are linears of the same model that no output depends on, such as "pooler.dense". An
	// adapter may have tensors for them, which are left out.
	Unused []string
	// Fixed are linears that outputs do depend on and that cannot be adapted, each with the reason.
	Fixed map[string]string
}

// Pair is an adapter's part of one linear: B·A is what is added to the weight.
type Pair struct {
	Rank  int
	Shape           // of the linear
	A, B  []float32 // [Rank, K] and [N, Rank], row-major; B has the scale in it
}

// Adapter is a whole adapter. It is the caller's; nothing refers to files.
type Adapter struct {
	Pairs     map[string]Pair // by the names of Base.Linears; the others get nothing
	Rank      int             // the largest
	Bytes     int64           // of all A and B
	BaseModel string          // what the adapter says it was trained on; may be empty or a path of another machine

	shapes map[string]Shape // Base.Linears
}

// Error says why an adapter cannot be used. It is permanent for the files as they are.
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
