package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Both terms by the block's own projections, both by projections for distances alone, and one of
// each. deberta-v3 has texts of 2,048 tokens, so it is not among casesFor.
var debertaCases = []string{"deberta-own", "deberta-c2p"}

var (
	longDebertas = []string{"deberta-v3"}
	moreDebertas = []string{"deberta-own-c2p", "deberta-own-p2c"}
	// oddDebertas have heads without a GPU kernel.
	oddDebertas = []string{"deberta-p2c"}
)

func allDebertas() []string {
	return slices.Concat(debertaCases, longDebertas, moreDebertas, oddDebertas)
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestDebertaGoldensAttend(t *testing.T) {
	for _, name := range allDebertas() {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

// Texts of one token to four times max_position_embeddings.
func TestDebertaStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		info, err := dev.Info()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range allDebertas() {
			if info.Kind == engine.Ref && slices.Contains(longDebertas, name) {
				continue // 2,048 tokens take the plain loops 40 s
			}
			c := golden.Open(t, name)
			m, r := loadLong(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// loadLong is loadStates for texts of up to 2,048 tokens.
func loadLong(
	t *testing.T, dev *engine.Device, dir string, compute engine.Compute,
) (*Model, *engine.Runner) {
	m, r := load(t, dev, dir, Options{Task: Embed, Compute: compute, MaxSeqLen: 2048})
	m.given[outStates] = given{rows: engine.PoolMean, record: func(r *recording) { r.OutputValues(r.x) }}
	return m, r
}

// The bucket of every distance to 8,192 is transformers', in both directions.
func TestDebertaBuckets(t *testing.T) {
	c := golden.Open(t, "deberta-buckets")
	for _, sizes := range [][2]int64{{256, 512}, {32, 128}, {8, 20}, {15, 40}, {64, 512}, {512, 2048},
		{4, 512}, {6, 8192}, {30, 17}} {
		name := fmt.Sprintf("%d_%d", sizes[0], sizes[1])
		of := debertaConfig{Buckets: sizes[0], Reach: sizes[1]}
		want := expand(c.Int32(name), 8193)
		for distance, bucket := range want {
			ahead, behind := of.bucket(int64(distance)), of.bucket(-int64(distance))
			if ahead != int64(bucket) || behind != -int64(bucket) {
				t.Fatalf("%s: distance %d has buckets %d and %d; transformers has ±%d",
					name, distance, ahead, behind, bucket)
			}
		}
		checkRows(t, name, &of, want)
	}
}

// expand returns the buckets of the distances from 0 on. begins has the distance where a bucket
// begins and the bucket, in turn.
func expand(begins []int32, n int) []int32 {
	out := make([]int32, n)
	for i := 0; i < len(begins); i += 2 {
		for at := int(begins[i]); at < n; at++ {
			out[at] = begins[i+1]
		}
	}
	return out
}

// checkRows compares the rows that attention gets with those that transformers gathers.
func checkRows(t *testing.T, name string, of *debertaConfig, want []int32) {
	t.Helper()
	rows, span := of.rowsByDistance(), int32(of.span())
	far := len(rows) / 2
	if !slices.IsSorted(rows) || len(rows)%2 != 1 {
		t.Errorf("%s: %d rows, which fall", name, len(rows))
	}
	for distance, bucket := range want[:debertaLongest] {
		at := min(distance, far)
		ahead := min(max(bucket+span, 0), 2*span-1)
		behind := min(max(-bucket+span, 0), 2*span-1)
		if rows[far+at] != ahead || rows[far-at] != behind {
			t.Fatalf("%s: distances ±%d have rows %d and %d; transformers gathers %d and %d",
				name, distance, rows[far+at], rows[far-at], ahead, behind)
		}
	}
}

// Without buckets each distance has a row, up to max_relative_positions.
func TestDebertaRowsWithoutBuckets(t *testing.T) {
	rows := (&debertaConfig{Buckets: -1, Reach: 3}).rowsByDistance()
	if want := []int32{0, 1, 2, 3, 4, 5, 5}; !slices.Equal(rows, want) {
		t.Errorf("%v; %v expected", rows, want)
	}
}

// A text is as long as sentence-transformers makes it, max_position_embeddings, unless the files or
// the options say more.
func TestDebertaLongestText(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "deberta-v3").Dir
	for length, options := range map[int]Options{
		512:            {Task: Embed},
		2048:           {Task: Embed, MaxSeqLen: 2048},
		debertaLongest: {Task: Embed, MaxSeqLen: 1 << 20},
	} {
		m, _ := load(t, dev, from, options)
		if m.MaxSeqLen != length {
			t.Errorf("%+v: %d tokens, %d expected", options, m.MaxSeqLen, length)
		}
	}
	stated := edit(t, from, configFile, nil)
	limit := []byte(`{"model_max_length": 1024}`)
	if err := os.WriteFile(filepath.Join(stated, tokenizerFile), limit, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, _ := load(t, dev, stated, Options{Task: Embed}); m.MaxSeqLen != 1024 {
		t.Errorf("model_max_length 1024: %d tokens", m.MaxSeqLen)
	}
}

// Keys that change the computation are read, or refused by name; those that DeBERTa's code ignores
// are ignored.
func TestBadDebertaIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "deberta-v3").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"relative_attention", false, []string{"relative_attention", "false", "true is possible"}},
		{"position_biased_input", true, []string{"position_biased_input", "absolute positions"}},
		{"conv_kernel_size", 3, []string{"conv_kernel_size", "is 3", "convolution"}},
		{"embedding_size", 32, []string{"embedding_size", "is 32", "64"}},
		{"attention_head_size", 64, []string{"attention_head_size", "is 64", "make 32"}},
		{"pooler_hidden_size", 32, []string{"pooler_hidden_size", "is 32"}},
		{"pooler_hidden_act", "mish", []string{"pooler_hidden_act", "mish", "gelu"}},
		{"hidden_act", "mish", []string{"hidden_act", "mish"}},
		{"pos_att_type", nil, []string{"pos_att_type", "missing", "c2p"}},
		{"pos_att_type", []any{}, []string{"pos_att_type", "missing"}},
		{"pos_att_type", "c2p|p2p", []string{"pos_att_type", "p2p", "c2p and p2c"}},
		{"pos_att_type", []any{"C2P"}, []string{"pos_att_type", "C2P"}},
		{"pos_att_type", 3, []string{"pos_att_type", "is 3"}},
		{"norm_rel_ebd", "batch_norm", []string{"norm_rel_ebd", "batch_norm", "layer_norm"}},
		{"position_buckets", 3, []string{"position_buckets", "is 3", "4 to 4096"}},
		{"position_buckets", 5000, []string{"position_buckets", "is 5000"}},
		{"position_buckets", 128, []string{"rel_embeddings.weight", "[512 64]", "[256 64]"}},
		{"position_buckets", -1, []string{"rel_embeddings.weight", "[512 64]", "[1024 64]"}},
		{"max_relative_positions", 129, []string{"max_relative_positions", "is 129", "256", "130"}},
		{"max_relative_positions", 1 << 21, []string{"max_relative_positions"}},
		{"share_att_key", false, []string{"pos_key_proj", "no such tensor"}},
		{"type_vocab_size", 2, []string{"token_type_embeddings.weight", "no such tensor"}},
		{"num_attention_heads", 0, []string{"num_attention_heads"}},
		{"num_hidden_layers", 3, []string{"encoder.layer.2.", "no such tensor"}},
		{"num_hidden_layers", 1, []string{"encoder.layer.1.", "num_hidden_layers"}},
		{"vocab_size", 46, []string{"word_embeddings.weight", "[47 64]"}},
		{"layer_norm_eps", 0, []string{"layer_norm_eps"}},
		{"max_position_embeddings", 0, []string{"max_position_embeddings"}},
	} {
		refused(t, dev, edit(t, from, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	for key, value := range map[string]any{
		"pad_token_id": 7, "position_embedding_type": "absolute", "legacy": false, "attention_head_size": 32,
		"pos_att_type": "P2C | c2p", "norm_rel_ebd": "none|LAYER_NORM", "conv_kernel_size": 0,
		"max_relative_positions": 0, "hidden_dropout_prob": 0.5,
		// transformers' own where the file has none
		"layer_norm_eps": nil, "hidden_act": nil, "type_vocab_size": nil, "max_position_embeddings": nil,
		"pooler_hidden_act": nil,
	} {
		want, r := load(t, dev, from, Options{Task: Embed})
		m, r2 := load(t, dev, edit(t, from, configFile, map[string]any{key: value}), Options{Task: Embed})
		b := goldenBatch(golden.Open(t, "deberta-v3")).pick(0, 1, 2)
		if err := sameBits(embed(t, m, r2, b, true), embed(t, want, r, b, true)); err != nil {
			t.Errorf("%s = %v: %v", key, value, err)
		}
	}
}

// Looking at the files finds the tables of distances and the layers that make them.
func TestDebertaLeavesNothingOver(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, name := range allDebertas() {
		r, err := Check(golden.Open(t, name).Dir, dev, Options{Task: Embed})
		if err != nil || len(r.Problems) > 0 || len(r.LeftOver) > 0 {
			t.Errorf("%s: %v: %+v", name, err, r)
		}
	}
}

// What a load takes is what looking at the files says.
func TestDebertaSize(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, name := range []string{"deberta-v3", "deberta-own"} {
		dir := golden.Open(t, name).Dir
		m, _ := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
		size, err := SizeOf(dir, dev, Options{Task: Embed, Compute: engine.ComputeF32})
		if share := float64(size.Packed) / float64(m.Bytes()); err != nil || share < 0.9 || share > 1.6 {
			t.Errorf("%s: %v: %d bytes are foretold, %d are packed", name, err, size.Packed, m.Bytes())
		}
	}
}

// An adapter for a projection that makes tables of distances would change these, for its sequences
// alone. It is refused by the projection's name. The reference says how far the last state would be
// from PEFT's with the tables of the base.
func TestAdaptersOfDistanceTablesAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, adapters := range map[string]map[string]string{
		"lora-deberta":     {"queries": "query_proj", "keys": "key_proj"},
		"lora-deberta-own": {"positions": "pos_key_proj"},
	} {
		c := golden.Open(t, name)
		m, _ := load(t, dev, c.Dir, Options{Task: Embed})
		changes := c.Notes["refused_change_by_tables"].(map[string]any)
		if len(changes) != len(adapters) {
			t.Errorf("%s: %v", name, changes)
		}
		for adapter, projection := range adapters {
			if by := changes[adapter].(float64); by < 0.1 {
				t.Errorf("%s, %s: the tables change the last state by %v only", name, adapter, by)
			}
			a, err := m.LoadAdapter(filepath.Join(c.Dir, "refused", adapter))
			if err == nil {
				a.Close()
				t.Errorf("%s, %s: taken", name, adapter)
				continue
			}
			for _, part := range []string{
				"attention.self." + projection, "table of distances", "other linears",
			} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, %s: %v; %q expected", name, adapter, err, part)
				}
			}
		}
	}
}

// A model of one term has tables of that term alone, so that the other projection can be adapted.
func TestDebertaFixesWhatMakesItsTables(t *testing.T) {
	for name, want := range map[string][]string{
		"deberta-v3":      {"attention.self.key_proj", "attention.self.query_proj"},
		"deberta-c2p":     {"attention.self.key_proj"},
		"deberta-p2c":     {"attention.self.query_proj"},
		"deberta-own-c2p": {"attention.self.pos_key_proj"},
	} {
		of, err := readDeberta(files.Dir(golden.Open(t, name).Dir))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, table := range of.distanceTables() {
			got = append(got, table.projection)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; %v expected", name, got, want)
		}
	}
}
