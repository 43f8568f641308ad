package arch

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var t5Cases = []string{"t5-mt5", "t5-umt5"}

// oddT5s have heads without a GPU kernel.
var oddT5s = []string{"t5-plain"}

func TestT5States(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(t5Cases, oddT5s) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestT5GoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(t5Cases, oddT5s) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

func TestBadT5IsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "t5-mt5").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"d_model", 0, []string{"d_model"}},
		{"d_model", nil, []string{"d_model"}},
		{"d_kv", 2000, []string{"d_kv", "2000"}},
		{"d_kv", 300, []string{"d_kv", "256"}},
		{"num_heads", 3, []string{"SelfAttention.q.weight", "[64 40]", "[96 40]"}},
		{"num_layers", 3, []string{"encoder.block.2.", "no such tensor"}},
		{"num_layers", 1, []string{"is of block 1; num_layers is 1"}},
		{"relative_attention_num_buckets", 30, []string{"relative_attention_num_buckets", "is 30", "4"}},
		{"relative_attention_num_buckets", 0, []string{"relative_attention_num_buckets"}},
		{"relative_attention_max_distance", 8, []string{"relative_attention_num_buckets", "8"}},
		{"relative_attention_max_distance", 1 << 20, []string{"relative_attention_max_distance"}},
		{"layer_norm_epsilon", 0, []string{"layer_norm_epsilon"}},
		{"hidden_size", 41, []string{"hidden_size", "is 41", "d_model is 40"}},
		{"num_hidden_layers", 3, []string{"num_hidden_layers", "num_layers is 2"}},
		{"head_dim", 20, []string{"head_dim", "d_kv is 32"}},
		{"num_attention_heads", 4, []string{"num_attention_heads", "num_heads is 2"}},
		{"dense_act_fn", "relu", []string{"dense_act_fn", "gelu_new"}},
		{"is_gated_act", false, []string{"is_gated_act"}},
		{"is_decoder", true, []string{"is_decoder"}},
		{"feed_forward_proj", "gated-mish", []string{"feed_forward_proj", "gated-mish", "gated-gelu"}},
		{"vocab_size", 52, []string{"shared.weight", "[53 40]"}},
	} {
		refused(t, dev, edit(t, from, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
}

// The encoder of a file that describes both parts is the encoder.
func TestT5OfTwoParts(t *testing.T) {
	dev, c := open(t, engine.Options{}), golden.Open(t, "t5-umt5")
	dir := edit(t, c.Dir, configFile, map[string]any{"is_encoder_decoder": true, "num_decoder_layers": 2})
	m, r := loadStates(t, dev, dir, engine.ComputeF32)
	if err := compareStates(t, m, r, c); err != nil {
		t.Error(err)
	}
}

// Looking at the files finds the tables of distances, which are read on the host.
func TestT5LeavesNothingOver(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, name := range slices.Concat(t5Cases, oddT5s) {
		r, err := Check(golden.Open(t, name).Dir, dev, Options{Task: Embed})
		if err != nil || len(r.Problems) > 0 || len(r.LeftOver) > 0 {
			t.Errorf("%s: %v: %+v", name, err, r)
		}
	}
}

// A gated MLP has three matrices, and the heads together may be wider than a row.
func TestT5Cost(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, want := range map[string]Cost{
		"t5-mt5":   {PerToken: 2 * 2 * 40 * (4*64 + 3*28), PerPair: 2 * 4 * 64},
		"t5-plain": {PerToken: 2 * 2 * 33 * (4*33 + 2*25), PerPair: 2 * 4 * 33},
	} {
		m, _ := load(t, dev, golden.Open(t, name).Dir, Options{Task: Embed, Compute: engine.ComputeF32})
		if got := m.Cost(); got != want {
			t.Errorf("%s: %+v, expected %+v", name, got, want)
		}
	}
}
