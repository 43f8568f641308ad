package arch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// BenchmarkGLiNERBiLabels runs one text of 100 words with the rows of 10, 100 and 1,000 labels that
// a server has kept, nothing of which is found. SIE_BENCH_BI names the folder of a model, such as
// bench/bimodel.py makes; without it the model is a tiny one.
func BenchmarkGLiNERBiLabels(b *testing.B) {
	dev, err := engine.Open(engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(dev.Close)
	dir := cmp.Or(os.Getenv("SIE_BENCH_BI"), golden.Open(b, "gliner-bi-modernbert-span").Dir)
	m, r := load(b, dev, dir, Options{Task: Spans})
	random := rand.New(rand.NewPCG(1, 2))
	run := engine.Batch{Program: m.Program(), IDs: []int32{2}, Partner: []int32{0}}
	for i := range int32(100) { // words of one and two tokens
		run.Words.First = append(run.Words.First, int32(len(run.IDs)))
		for range 1 + i%2 {
			run.IDs = append(run.IDs, 5+random.Int32N(int32(m.Vocab)-5))
		}
		run.Words.Last = append(run.Words.Last, int32(len(run.IDs))-1)
	}
	run.IDs = append(run.IDs, 3)
	run.CuSeqlens, run.Words.Cu = []int32{0, int32(len(run.IDs))}, []int32{0, 100}
	run.Items[0] = []engine.OutItem{{DType: engine.F32, Dims: 1, Threshold: 1e30}}
	run.OutBytes[0] = engine.FoundBytes(&run.Program.Outputs()[0], 1)
	for _, n := range []int{10, 100, 1000} {
		run.Queries = make([]float32, n*m.GLiNER.Tower.Row)
		for i := range run.Queries {
			run.Queries[i] = random.Float32() - 0.5
		}
		run.CuQueries = []int32{0, int32(n)}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if err := r.Run(b.Context(), &run); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
