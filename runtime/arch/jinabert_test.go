package arch

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var jinaBertCases = []string{"jina-h1-d64", "jina-h2-d32", "jina-original", "jina-code-original"}

// oddJinaBerts have heads without a GPU kernel.
var oddJinaBerts = []string{"jina-h3-d11", "jina-code-h3-d11", "jina-h6-d7", "jina-h12-d5",
	"jina-code-h12-d3"}

// mixedJinaBerts are those that tests of batches run. The last has heads without a GPU kernel.
var mixedJinaBerts = []string{"jina-h2-d32", "jina-code-original", "jina-code-h3-d11"}

func TestJinaBertStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(jinaBertCases, oddJinaBerts) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestJinaBertGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(jinaBertCases, oddJinaBerts) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

// The slopes of published models, which have 8 and 12 heads, and of the numbers in between.
func TestALiBiSlopes(t *testing.T) {
	for heads, exponents := range map[int][]float64{
		1: {8}, 2: {4, 8}, 3: {4, 8, 2}, 4: {2, 4, 6, 8}, 6: {2, 4, 6, 8, 1, 3},
		8: {1, 2, 3, 4, 5, 6, 7, 8}, 12: {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5},
	} {
		want := make([]float32, heads)
		for i, e := range exponents {
			want[i] = float32(math.Pow(2, -e))
		}
		if got := alibiSlopes(heads); !slices.Equal(got, want) {
			t.Errorf("%d heads: %v, expected %v", heads, got, want)
		}
	}
}

// Queries that are filled up with tokens which nobody attends to need keys with places.
func TestJinaBertHidesNoFilling(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	m, _ := load(t, dev, golden.Open(t, "jina-h2-d32").Dir, Options{Task: Embed})
	_, err := m.Record(Want{Give: Give(OutDense), AttendKept: true})
	const says = "attend_to_expansion_tokens cannot be false for jina-bert"
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v", err)
	}
}

// What the two modelling files do not compute, or this build does not, is refused by its key.
func TestBadJinaBertIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "jina-h2-d32").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"feed_forward_type", "reglu", []string{"feed_forward_type", "reglu", "geglu and original"}},
		{"feed_forward_type", nil, []string{"feed_forward_type", "missing"}},
		{"position_embedding_type", "absolute", []string{"position_embedding_type is alibi", "absolute"}},
		{"hidden_act", "mish", []string{"hidden_act", "mish"}},
		{"num_attention_heads", 5, []string{"num_attention_heads", "does not divide"}},
		{"num_attention_heads", 0, []string{"num_attention_heads"}},
		{"num_attention_heads", 1000000000, []string{"num_attention_heads", "256"}},
		{"num_hidden_layers", 2, []string{"bert.encoder.layer.1.", "no such tensor"}},
		{"num_hidden_layers", -1, []string{"num_hidden_layers"}},
		{"intermediate_size", 20, []string{"mlp.gated_layers.weight", "[60 64]", "[40 64]"}},
		{"vocab_size", 100, []string{"word_embeddings", "[43 64]"}},
		{"type_vocab_size", 0, []string{"type_vocab_size", "is 0", "token_type_embeddings"}},
		{"layer_norm_eps", 0, []string{"layer_norm_eps"}},
		{"is_decoder", true, []string{"is_decoder"}},
	} {
		refused(t, dev, edit(t, from, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	refused(t, dev, edit(t, golden.Open(t, "jina-code-h12-d3").Dir, configFile,
		map[string]any{"num_hidden_layers": 1}),
		"another block", "bert.encoder.layer.1.", "num_hidden_layers is 1")
	// the code of one file over the checkpoint of the other
	code := golden.Open(t, "jina-code-h3-d11").Dir
	refused(t, dev, edit(t, code, configFile, map[string]any{"auto_map": map[string]any{
		"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}}),
		"other names", "mlp.gated_layers.weight", "no such tensor")
}
