// Package prefix times a decoder reranker with and without the sharing of what its texts begin with
// (docs/adr/0034).
package prefix

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

var (
	precisions = flag.String("precisions", "fp32,int8", "precisions, by commas")
	queries    = flag.String("queries", "60,256", "tokens of a query with instruction and prompt, by commas")
	layers     = flag.Int("layers", 8, "blocks of the model")
	threads    = flag.Int("threads", 0, "executors; 0: all CPUs")
	documents  = flag.Int("documents", 100, "documents of a query")
	tokens     = flag.Int("tokens", 128, "tokens of a document, with what follows it in the prompt")
)

// BenchmarkPrefixes makes a random checkpoint in the shape of Qwen3-Reranker-0.6B, with fewer
// blocks and words, and scores one query with many documents in process, batch by batch, in turns
// with and without prefixes: an operation is a round of both. All logits are compared bit for bit.
// It reports the medians of both times, and the quartiles of the round-by-round ratio.
func BenchmarkPrefixes(b *testing.B) {
	dir := b.TempDir()
	if err := writeModel(dir, *layers); err != nil {
		b.Fatal(err)
	}
	dev, err := engine.Open(engine.Options{Threads: *threads})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	r := engine.NewRunner(dev)
	defer r.Close()
	for precision := range strings.SplitSeq(*precisions, ",") {
		b.Run("precision="+precision, func(b *testing.B) {
			if err := race(b, dir, dev, r, precision); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// race measures one precision.
func race(b *testing.B, dir string, dev *engine.Device, r *engine.Runner, precision string) error {
	compute, ok := engine.ParseCompute(precision)
	if !ok {
		return fmt.Errorf("no such precision")
	}
	load := func(off bool) (*arch.Model, error) {
		return arch.Load(dir, dev, arch.Options{Task: arch.Judge, Compute: compute, Answers: []int32{5, 9},
			NoPrefixes: off})
	}
	shares, err := load(false)
	if err != nil {
		return err
	}
	defer shares.Close()
	off, err := load(true)
	if err != nil {
		return err
	}
	defer off.Close()
	prefixes, err := shares.RecordPrefixes(nil)
	if err != nil {
		return err
	}
	defer prefixes.Close()
	for query := range strings.SplitSeq(*queries, ",") {
		n, err := strconv.Atoi(query)
		if err != nil {
			return err
		}
		t := newTexts(n, *documents, *tokens)
		budget := int(shares.Caps(false).MaxTokens)
		with, without := t.shared(shares.Program(), prefixes, budget), t.whole(off.Program(), budget)
		b.Run("query="+query, func(b *testing.B) { compare(b, r, with, without) })
	}
	return nil
}

// compare runs both lists of batches in turns.
func compare(b *testing.B, r *engine.Runner, with, without []*engine.Batch) {
	var times [2][]float64
	var ratios []float64
	turn := func(first int) (took [2]float64) {
		for i := range 2 {
			i = (first + i) % 2 // A B, B A, …
			start := time.Now()
			for _, batch := range [][]*engine.Batch{with, without}[i] {
				if err := r.Run(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			took[i] = time.Since(start).Seconds()
		}
		if !bytes.Equal(logits(with), logits(without)) {
			b.Fatal("logits with shared prefixes differ from those without")
		}
		return took
	}
	turn(0) // warms up
	for b.Loop() {
		took := turn(len(ratios) + 1)
		for i := range times {
			times[i] = append(times[i], took[i])
		}
		ratios = append(ratios, took[1]/took[0])
	}
	quarter := func(v []float64, q int) float64 {
		v = slices.Sorted(slices.Values(v))
		return v[(len(v)-1)*q/4]
	}
	b.ReportMetric(quarter(times[0], 2), "shared-s")
	b.ReportMetric(quarter(times[1], 2), "whole-s")
	for q, unit := range []string{1: "ratio-q1", "ratio", "ratio-q3"} {
		if unit != "" {
			b.ReportMetric(quarter(ratios, q), unit)
		}
	}
}

func logits(batches []*engine.Batch) (all []byte) {
	for _, b := range batches {
		all = append(all, b.Out[0]...)
	}
	return all
}

// texts is a query with its documents, as ids.
type texts struct {
	query     []int32
	documents [][]int32
}

const vocabulary = 8192

func newTexts(query, documents, tokens int) texts {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(vocabulary)
		}
		return ids
	}
	t := texts{query: random(query)}
	for range documents {
		t.documents = append(t.documents, random(tokens))
	}
	return t
}

// whole returns batches of at most budget tokens of the documents with the query before each.
func (t texts) whole(p *engine.Program, budget int) (batches []*engine.Batch) {
	for _, d := range t.documents {
		b := grow(&batches, p, budget, len(t.query)+len(d), nil)
		b.IDs = append(append(b.IDs, t.query...), d...)
		end(b)
	}
	return batches
}

// shared returns batches of at most budget tokens of the documents behind the query, which each
// batch has once.
func (t texts) shared(p, prefixes *engine.Program, budget int) (batches []*engine.Batch) {
	n := int32(len(t.query))
	for _, d := range t.documents {
		b := grow(&batches, p, budget-len(t.query), len(d),
			&engine.Batch{Program: prefixes, IDs: t.query, CuSeqlens: []int32{0, n}})
		b.IDs = append(b.IDs, d...)
		b.PrefixFirst, b.PrefixRows = append(b.PrefixFirst, 0), append(b.PrefixRows, n)
		end(b)
	}
	return batches
}

// grow returns the last batch, or a new one where that has no room for more tokens.
func grow(batches *[]*engine.Batch, p *engine.Program, room, more int, prefix *engine.Batch) *engine.Batch {
	if n := len(*batches); n > 0 && len((*batches)[n-1].IDs)+more <= room {
		return (*batches)[n-1]
	}
	b := &engine.Batch{Program: p, CuSeqlens: []int32{0}, Prefix: prefix}
	*batches = append(*batches, b)
	return b
}

// end ends a sequence.
func end(b *engine.Batch) {
	b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
	b.OutBytes[0] += 8 // two logits
}

// writeModel writes a random checkpoint in bfloat16 with the shapes of Qwen3-Reranker-0.6B.
func writeModel(dir string, layers int) error {
	const c, f, d, heads, kv = 1024, 3072, 128, 16, 8
	config := fmt.Appendf(nil, `{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": %d,
"intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d,
"head_dim": %d, "vocab_size": %d, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 4096,
"hidden_act": "silu", "tie_word_embeddings": true, "attention_bias": false, "torch_dtype": "bfloat16"}`,
		c, f, layers, heads, kv, d, vocabulary)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	w := newCheckpoint()
	w.add("model.embed_tokens.weight", 1, vocabulary, c)
	for i := range layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		w.add(at+"input_layernorm.weight", 0, c)
		w.add(at+"self_attn.q_proj.weight", 1, heads*d, c)
		w.add(at+"self_attn.k_proj.weight", 1, kv*d, c)
		w.add(at+"self_attn.v_proj.weight", 1, kv*d, c)
		w.add(at+"self_attn.q_norm.weight", 0, d)
		w.add(at+"self_attn.k_norm.weight", 0, d)
		w.add(at+"self_attn.o_proj.weight", 1, c, heads*d)
		w.add(at+"post_attention_layernorm.weight", 0, c)
		w.add(at+"mlp.gate_proj.weight", 1, f, c)
		w.add(at+"mlp.up_proj.weight", 1, f, c)
		w.add(at+"mlp.down_proj.weight", 1, c, f)
	}
	w.add("model.norm.weight", 0, c)
	return w.write(filepath.Join(dir, "model.safetensors"))
}

// checkpoint is a safetensors file in the making.
type checkpoint struct {
	rng    *rand.Rand
	header map[string]any
	data   []byte
}

func newCheckpoint() *checkpoint {
	return &checkpoint{rng: rand.New(rand.NewPCG(1, 2)), header: map[string]any{}}
}

// add adds a bfloat16 tensor: ones, or numbers whose product with a row of ones keeps its size.
func (w *checkpoint) add(name string, spread float64, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	start := len(w.data)
	scale := spread / math.Sqrt(float64(shape[len(shape)-1]))
	for range n {
		x := float32(1)
		if spread > 0 {
			x = float32(w.rng.NormFloat64() * scale)
		}
		w.data = binary.LittleEndian.AppendUint16(w.data, uint16(math.Float32bits(x)>>16))
	}
	w.header[name] = map[string]any{"dtype": "BF16", "shape": shape,
		"data_offsets": [2]int{start, len(w.data)}}
}

func (w *checkpoint) write(path string) error {
	header, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return os.WriteFile(path, slices.Concat(out, header, w.data), 0o600)
}
