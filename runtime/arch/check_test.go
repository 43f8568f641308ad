package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// rewrite replaces the checkpoint of a copy of from by what change makes of its tensors.
func rewrite(t *testing.T, from string, change func([]weightstest.Tensor) []weightstest.Tensor) string {
	t.Helper()
	dir := edit(t, from, configFile, nil)
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var tensors []weightstest.Tensor
	for _, name := range c.Names() {
		x, _ := c.Tensor(name)
		tensors = append(tensors,
			weightstest.Tensor{Name: name, DType: x.DType, Shape: x.Shape, Data: weightstest.Bytes(x)})
	}
	write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, change(tensors)...))
	return dir
}

// Check goes on behind a tensor that is missing or has another shape, so that one look shows all.
func TestCheckReportsEveryTensor(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "st-mean-dense-tanh-normalize-prompts").Dir
	whole, err := Check(from, dev, Options{Task: Embed})
	if err != nil || len(whole.Problems) > 0 || whole.Arch != "bert" || whole.Tokens == 0 ||
		!slices.Equal(whole.Parts, []string{"2_Dense/model.safetensors", "model.safetensors"}) {
		t.Fatalf("%+v, %v", whole, err)
	}
	m, _ := load(t, dev, from, Options{Task: Embed})
	if m.Dim != whole.Dim || m.Layers != whole.Layers {
		t.Errorf("%d columns and %d blocks; loaded %d and %d", whole.Dim, whole.Layers, m.Dim, m.Layers)
	}
	if size, err := SizeOf(from, dev, Options{Task: Embed}); err != nil || size != whole.Size {
		t.Errorf("size %+v, %v; SizeOf says %+v", whole.Size, err, size)
	}
	dir := rewrite(t, from, func(tensors []weightstest.Tensor) []weightstest.Tensor {
		var out []weightstest.Tensor
		for _, x := range tensors {
			switch {
			case strings.HasSuffix(x.Name, "layer.0.attention.self.key.weight"): // missing
				continue
			case strings.HasSuffix(x.Name, "layer.1.output.dense.bias"):
				x.Shape, x.Data = []int64{x.Shape[0] - 1}, x.Data[4:]
			case strings.HasSuffix(x.Name, "layer.1.intermediate.dense.bias"):
				x.DType = weights.I32
			}
			out = append(out, x)
		}
		return append(out, weightstest.Float32("adapter.extra", []int64{1}, 7))
	})
	r, err := Check(dir, dev, Options{Task: Embed})
	if err != nil || len(r.Problems) != 3 || !slices.Contains(r.LeftOver, "adapter.extra") ||
		len(r.LeftOver) != len(whole.LeftOver)+1 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, says := range []string{"layer.0.attention.self.key.weight: no such tensor; shape [32 32]",
		"layer.1.intermediate.dense.bias: has dtype I32", "layer.1.output.dense.bias: has shape [31]"} {
		if !strings.Contains(r.Problems[i].Error(), says) {
			t.Errorf("problem %d is %v; want %q", i, r.Problems[i], says)
		}
	}
	refused(t, dev, dir, "a model with problems", "layer.0.attention.self.key.weight")
}

// A checkpoint with blocks that the configuration does not count is refused.
func TestExtraBlocksAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, name := range []string{"st-mean", "xlmr-h64", "distilbert-h96", "electra-e64"} {
		key := "num_hidden_layers"
		if name == "distilbert-h96" {
			key = "n_layers"
		}
		dir := edit(t, golden.Open(t, name).Dir, configFile, map[string]any{key: 1})
		refused(t, dev, dir, name, "layer.1.", "is of block 1; "+key+" is 1")
		r, err := Check(dir, dev, Options{Task: Embed})
		if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), "is of block 1") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// Check reads headers only: a checkpoint of many gigabytes that has no bytes on the disk is looked
// at within the memory of its header.
func TestCheckOfASparseCheckpoint(t *testing.T) {
	const blocks, c, f, vocab = 24, 4096, 16384, 250_000
	dir := edit(t, golden.Open(t, "st-mean").Dir, configFile, map[string]any{
		"hidden_size": c, "intermediate_size": f, "num_attention_heads": 32, "num_hidden_layers": blocks,
		"vocab_size": vocab, "max_position_embeddings": 512, "type_vocab_size": 2})
	var header strings.Builder
	end := int64(0)
	add := func(name string, shape ...int64) {
		n := int64(2)
		for _, d := range shape {
			n *= d
		}
		fmt.Fprintf(&header, `,%q:{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]}`, name,
			strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ","), end, end+n)
		end += n
	}
	norm := func(name string) { add(name+".weight", c); add(name+".bias", c) }
	layer := func(name string, out, in int64) { add(name+".weight", out, in); add(name+".bias", out) }
	add("embeddings.word_embeddings.weight", vocab, c)
	add("embeddings.position_embeddings.weight", 512, c)
	add("embeddings.token_type_embeddings.weight", 2, c)
	norm("embeddings.LayerNorm")
	for i := range blocks {
		at, n := fmt.Sprintf(encoderLayer, i), encoderTensors
		for _, x := range []string{n.query, n.key, n.value, n.out} {
			layer(at+x, c, c)
		}
		norm(at + n.attentionNorm)
		layer(at+n.up, f, c)
		layer(at+n.down, c, f)
		norm(at + n.blockNorm)
	}
	text := "{" + header.String()[1:] + "}"
	path := filepath.Join(dir, weights.SingleFile)
	write(t, path, weightstest.File(text, nil))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()+end); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	before := residentBytes(t)
	dev := open(t, engine.Options{Threads: 1})
	r, err := Check(dir, dev, Options{Task: Embed, Compute: engine.ComputeF32})
	if err != nil || len(r.Problems) > 0 || len(r.LeftOver) > 0 || r.Read != 5+16*blocks {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.Size.Packed < 2*end || r.Size.Packed > 2*end+2*end/20 { // bf16 on the disk, fp32 packed
		t.Errorf("%d bytes packed of %d", r.Size.Packed, end)
	}
	if grown := residentBytes(t) - before; grown > 64<<20 {
		t.Errorf("%d MiB more in memory for a look at %d MiB", grown>>20, end>>20)
	}
}

// residentBytes returns how much memory the process holds.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var total, resident int64
	if _, err := fmt.Sscan(string(data), &total, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
