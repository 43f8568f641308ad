//go:build native

package arch_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// A directory that sentence-transformers saved becomes a program on a device, which a runner
// replays.
func Example() {
	device, err := engine.Open(engine.Options{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	model, err := arch.Load("../../testdata/golden/st-mean", device,
		arch.Options{Task: arch.Embed, Compute: engine.ComputeF32})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	fmt.Println(model.Arch, model.Dim, "dimensions,", model.MaxSeqLen, "tokens at most")

	runner := engine.NewRunner(device)
	defer runner.Close()
	batch := &engine.Batch{Program: model.Program(), IDs: []int32{2, 7, 9, 3}, CuSeqlens: []int32{0, 4},
		Items:    [engine.MaxOutputs][]engine.OutItem{{{DType: engine.F32, Normalize: true}}},
		OutBytes: [engine.MaxOutputs]int64{4 * int64(model.Dim)}}
	if err := runner.Run(context.Background(), batch); err != nil {
		log.Fatal(err)
	}
	length := 0.0
	for i := range model.Dim {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(batch.Out[0][4*i:])))
		length += x * x
	}
	fmt.Printf("a vector of length %.4f\n", math.Sqrt(length))
	// Output:
	// bert 32 dimensions, 40 tokens at most
	// a vector of length 1.0000
}
