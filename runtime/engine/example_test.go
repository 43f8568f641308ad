//go:build native

package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// floats encodes numbers as little-endian bytes.
func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// A model is packed weight by weight, its forward pass is recorded once, and the program is
// replayed for every batch. This one looks up a row of two numbers for each token, normalises the
// row and takes the mean of each sequence.
func Example() {
	device, err := engine.Open(engine.Options{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pack := func(kind engine.WeightKind, columns int64, values ...float32) *engine.Weight {
		w, err := device.NewWeight(engine.WeightSpec{
			Kind:    kind,
			Compute: engine.ComputeF32,
			DType:   engine.F32,
			K:       columns,
			Parts:   []engine.Part{{Data: floats(values...), Rows: int64(len(values)) / columns}},
		})
		if err != nil {
			log.Fatal(err)
		}
		return w
	}
	words := pack(engine.TableWeight, 2, 0, 2, 6, 2) // of two tokens
	gamma, beta := pack(engine.VectorWeight, 1, 1, 2), pack(engine.VectorWeight, 1, 0.5, 0)

	record := device.Record(engine.Caps{MaxTokens: 64, MaxSeqs: 8, MaxLen: 16})
	x := record.EmbedLayerNorm(engine.Embedding{Word: words, Gamma: gamma, Beta: beta})
	record.OutputRows(record.Pool(x, engine.PoolMean))
	program, err := record.End() // the first error of all operations
	if err != nil {
		log.Fatal(err)
	}

	runner := engine.NewRunner(device)
	// two sequences, of one and three tokens
	batch := &engine.Batch{Program: program, IDs: []int32{0, 0, 1, 1}, CuSeqlens: []int32{0, 1, 4},
		Items:    [engine.MaxOutputs][]engine.OutItem{{{DType: engine.F32}, {DType: engine.F32, Offset: 8}}},
		OutBytes: [engine.MaxOutputs]int64{16}}
	if err := runner.Run(context.Background(), batch); err != nil {
		log.Fatal(err)
	}
	for i := range 2 {
		row := batch.Out[0][8*i:]
		fmt.Printf("%.3f %.3f\n", math.Float32frombits(binary.LittleEndian.Uint32(row)),
			math.Float32frombits(binary.LittleEndian.Uint32(row[4:])))
	}
	runner.Close()
	program.Close()
	for _, w := range []*engine.Weight{words, gamma, beta} {
		w.Close()
	}
	// Output:
	// -0.500 2.000
	// 0.833 -0.667
}
