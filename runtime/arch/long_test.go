package arch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// sparseCheckpoint writes a checkpoint whose values are all 0 and take no room on the disk.
func sparseCheckpoint(t *testing.T, path, dtype string, tensors map[string][]int64) {
	t.Helper()
	header, end := map[string]any{}, int64(0)
	for name, shape := range tensors {
		n := int64(2)
		for _, d := range shape {
			n *= d
		}
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int64{end, end + n}}
		end += n
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)
	write(t, path, raw)
	if err := os.Truncate(path, int64(len(raw))+end); err != nil {
		t.Fatal(err)
	}
}

// decoderShape is the shape of a Qwen3 decoder.
type decoderShape struct{ hidden, inner, heads, kvHeads, headDim, layers, vocab int64 }

// decoderDir writes a decoder of that shape whose weights are 0. It takes texts of 32,768 tokens.
func decoderDir(t *testing.T, s decoderShape) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, configFile), fmt.Appendf(nil, `{"model_type": "qwen3", "hidden_size": %d,
		"intermediate_size": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d,
		"num_hidden_layers": %d, "vocab_size": %d, "max_position_embeddings": 32768,
		"rope_theta": 1000000, "architectures": ["Qwen3Model"]}`,
		s.hidden, s.inner, s.heads, s.kvHeads, s.headDim, s.layers, s.vocab))
	tensors := map[string][]int64{
		"embed_tokens.weight": {s.vocab, s.hidden}, "norm.weight": {s.hidden},
	}
	for i := range s.layers {
		at := fmt.Sprintf("layers.%d.", i)
		for name, shape := range map[string][]int64{
			"self_attn.q_proj.weight":         {s.heads * s.headDim, s.hidden},
			"self_attn.k_proj.weight":         {s.kvHeads * s.headDim, s.hidden},
			"self_attn.v_proj.weight":         {s.kvHeads * s.headDim, s.hidden},
			"self_attn.o_proj.weight":         {s.hidden, s.heads * s.headDim},
			"self_attn.q_norm.weight":         {s.headDim},
			"self_attn.k_norm.weight":         {s.headDim},
			"mlp.gate_proj.weight":            {s.inner, s.hidden},
			"mlp.up_proj.weight":              {s.inner, s.hidden},
			"mlp.down_proj.weight":            {s.hidden, s.inner},
			"input_layernorm.weight":          {s.hidden},
			"post_attention_layernorm.weight": {s.hidden},
		} {
			tensors[at+name] = shape
		}
	}
	sparseCheckpoint(t, filepath.Join(dir, weights.SingleFile), "BF16", tensors)
	return dir
}

// A text of 32,768 tokens of a model of Qwen3-Embedding-0.6B's shape needs at most 1 GiB of
// workspace, on any number of threads. The blocks are alike, so three of the 28 need the same.
func TestLongTextsNeedLittleMemory(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	info, err := dev.Info()
	if err != nil {
		t.Fatal(err)
	}
	dir := decoderDir(t, decoderShape{1024, 3072, 16, 8, 128, 3, 64})
	for _, compute := range []engine.Compute{engine.ComputeF32, engine.ComputeBF16, engine.ComputeINT8} {
		if !info.Supports(compute) { // rows of bf16 take no more than those of f32
			t.Logf("%s: not on this CPU", compute)
			continue
		}
		m, _ := load(t, dev, dir, Options{Task: Embed, Compute: compute, Pooling: engine.PoolLast})
		if m.MaxSeqLen != 32768 || m.ShortLen != DefaultShortLen {
			t.Fatalf("%d tokens, short up to %d", m.MaxSeqLen, m.ShortLen)
		}
		want := m.Own()
		want.Long = true
		p, err := m.Record(want)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		short, long := m.Program().Workspace(), p.Workspace()
		for _, threads := range []int{2, 16, 64} {
			t.Logf("%s, %d threads: short %d MiB, long %d MiB (lane %d KiB)", compute, threads,
				short.Bytes(threads)>>20, long.Bytes(threads)>>20, long.Lane>>10)
			if n := long.Bytes(threads); n > 1<<30 {
				t.Errorf("%s, %d threads: %d bytes", compute, threads, n)
			}
		}
	}
}

// Texts of at most ShortLen tokens run in the ordinary program, longer ones in the other, and
// neither takes the other's. Where the bound lies changes no bit of a text's vector.
func TestLengthClasses(t *testing.T) {
	dev := open(t, engine.Options{Threads: 2})
	for _, name := range []string{"st-qwen3-last", "st-mean"} {
		t.Run(name, func(t *testing.T) {
			dir := golden.Open(t, name).Dir
			whole, wholeRunner := load(t, dev, dir, Options{Task: Embed})
			split, runner := load(t, dev, dir, Options{Task: Embed, ShortLen: 20})
			if split.ShortLen != 20 || split.MaxSeqLen != whole.MaxSeqLen {
				t.Fatalf("short up to %d of %d tokens", split.ShortLen, split.MaxSeqLen)
			}
			if _, err := whole.Record(Want{Give: whole.Own().Give, Long: true}); err == nil {
				t.Error("a model without long texts records a program for them")
			}
			want := split.Own()
			want.Long = true
			long, err := split.Record(want)
			if err != nil {
				t.Fatal(err)
			}
			defer long.Close()
			rng := rand.New(rand.NewPCG(1, 2))
			run := func(m *Model, r *engine.Runner, p *engine.Program, ids []int32) ([]float32, error) {
				b := engine.Batch{Program: p, IDs: ids, CuSeqlens: []int32{0, int32(len(ids))}}
				b.Items[0] = []engine.OutItem{{DType: engine.F32, Dims: m.Dim, Normalize: true}}
				b.OutBytes[0] = int64(m.Dim * 4)
				err := r.Run(t.Context(), &b)
				return floats(b.Out[0]), err
			}
			for _, n := range []int{1, 19, 20, 21, split.MaxSeqLen} {
				ids := make([]int32, n)
				for i := range ids {
					ids[i] = rng.Int32N(int32(split.Vocab))
				}
				right, wrong := split.Program(), long
				if n > 20 {
					right, wrong = long, split.Program()
				}
				want, err := run(whole, wholeRunner, whole.Program(), ids)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := run(split, runner, right, ids); err != nil || sameBits(got, want) != nil {
					t.Errorf("%d tokens: %v, %v", n, err, sameBits(got, want))
				}
				if _, err := run(split, runner, wrong, ids); err == nil {
					t.Errorf("%d tokens run in the other class", n)
				}
			}
		})
	}
}

// The product of gate and up lies in memory for one stage only, so a wide MLP costs a long text
// nothing: a token takes less than its row of that product.
func TestGateAndUpDoNotGrowWithTheText(t *testing.T) {
	const inner = 16384
	dev := open(t, engine.Options{Threads: 2})
	dir := decoderDir(t, decoderShape{256, inner, 2, 1, 128, 2, 64})
	for _, compute := range []engine.Compute{engine.ComputeF32, engine.ComputeINT8} {
		m, _ := load(t, dev, dir, Options{Task: Embed, Compute: compute, Pooling: engine.PoolLast})
		want := m.Own()
		want.Long = true
		p, err := m.Record(want)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if perToken := p.Workspace().Region / 32768; perToken >= inner*4 {
			t.Errorf("%s: %d bytes a token", compute, perToken)
		}
	}
}
