package arch

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/lora"
)

// adaptedHeads are the base models of the case lora-heads, each with the golden tensor of the model
// without an adapter.
var adaptedHeads = map[string]struct {
	task  Task
	plain string
}{
	"rerank-sigmoid": {Classify, "logits"}, "classify-bert": {Classify, "logits"},
	"classify-xlmr": {Classify, "logits"}, "classify-distilbert": {Classify, "logits"},
	"tag-bert": {Tag, "token_logits"}, "splade-bert": {Splade, "splade"},
}

// Scores, labels, tags and sparse weights with PEFT's adapters, which change the encoder alone or
// the head as well. One batch has every text without an adapter and with each.
func TestAdaptersOfHeads(t *testing.T) { onEach(t, checkAdaptedHeads) }

func checkAdaptedHeads(t *testing.T, dev *engine.Device, compute engine.Compute) {
	adapted := golden.Open(t, "lora-heads")
	info, err := dev.Info()
	if err != nil {
		t.Fatal(err)
	}
	for base, c := range adaptedHeads {
		files := golden.Open(t, base)
		m, r := load(t, dev, files.Dir, Options{Task: c.task, Compute: compute})
		plain, _ := files.Float32(c.plain)
		wants, names := [][]float32{plain}, []string{"alone"}
		var adapters []*Adapter
		for _, name := range []string{"attention", "all"} {
			a, err := m.LoadAdapter(filepath.Join(adapted.Dir, base, name))
			if name == "all" && c.task == Classify && info.Kind == engine.CUDA {
				if err == nil ||
					!strings.Contains(err.Error(), "cannot be adapted: the head is computed in float32") {
					t.Errorf("%s: an adapter of the head on a card: %v", base, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", base, name, err)
			}
			t.Cleanup(a.Close)
			adapters = append(adapters, a)
			want, _ := adapted.Float32(base + "." + name)
			wants, names = append(wants, want), append(names, name)
		}
		program, err := m.RecordAdapted(m.Own(), adapters)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(program.Close)
		one, all, run := goldenBatch(files), packed{cu: []int32{0}}, engine.Batch{Program: program}
		for a := range wants {
			for _, end := range one.cu[1:] {
				all.cu = append(all.cu, int32(a*len(one.ids))+end)
				run.Adapter = append(run.Adapter, int32(a-1))
			}
			all.ids, all.types = append(all.ids, one.ids...), append(all.types, one.types...)
		}
		var got []float32
		if c.task == Splade {
			got = denseRows(t, r, run, all, m.Vocab)
		} else {
			got = values(t, r, run, all, 0, len(wants)*len(plain))
		}
		for a, want := range wants {
			compareHead(t, base+" "+names[a], compute, got[a*len(plain):(a+1)*len(plain)], want)
		}
	}
}

// denseRows runs a program of sparse rows and returns them as dense rows, zeros included.
func denseRows(t *testing.T, r *engine.Runner, run engine.Batch, b packed, vocab int) []float32 {
	t.Helper()
	run.IDs, run.TypeIDs, run.CuSeqlens = b.ids, b.types, b.cu
	size, n := engine.SparseBytes(vocab, engine.F32), len(b.cu)-1
	for i := range n {
		run.Items[0] = append(run.Items[0],
			engine.OutItem{Offset: int64(i) * size, DType: engine.F32, Dims: vocab})
	}
	run.OutBytes[0] = int64(n) * size
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, n*vocab)
	for i := range n {
		_, columns, weights := engine.SparseRow(run.Out[0][int64(i)*size:int64(i+1)*size], vocab, engine.F32)
		for j, x := range floats(weights) {
			out[i*vocab+int(columns[j])] = x
		}
	}
	return out
}

// Adapter parts that are not computed are refused by name: a head that the adapter replaces, and
// the decoder of SPLADE, which tagging models of the same family lack.
func TestAdaptersOfHeadsRefused(t *testing.T) {
	dev := open(t, engine.Options{})
	adapted := golden.Open(t, "lora-heads").Dir
	for base, c := range adaptedHeads {
		m, _ := load(t, dev, golden.Open(t, base).Dir, Options{Task: c.task})
		if c.task != Splade {
			var e *lora.Error
			_, err := m.LoadAdapter(filepath.Join(adapted, base, "saved"))
			if !errors.As(err, &e) || e.Field != "modules_to_save" ||
				!strings.Contains(e.Reason, "classifier") {
				t.Errorf("%s: %v", base, err)
			}
		}
		if _, decoder := m.fixed["cls.predictions.decoder"]; decoder != (c.task == Splade) {
			t.Errorf("%s: fixed linears %v", base, m.fixed)
		}
		if slices.Contains(m.unused(), m.encoder.heads().logits) != (c.task == Splade) {
			t.Errorf("%s: the logits' linear: unused are %v", base, m.unused())
		}
	}
}
