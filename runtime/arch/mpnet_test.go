package arch

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var mpnetCases = []string{"mpnet-h2-d32"}

// oddMPNets have heads without a GPU kernel.
var oddMPNets = []string{"mpnet-h3-d11"}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestMPNetGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(mpnetCases, oddMPNets) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.4 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

func TestMPNetStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(mpnetCases, oddMPNets) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The rows of all distances, as transformers' relative_position_bucket gives them.
func TestDistanceBuckets(t *testing.T) {
	row, next := 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}
	for n := range 141 {
		if slices.Contains(next, n) {
			row++
		}
		behind, ahead := distanceBucket(-n, 32, 128), distanceBucket(n, 32, 128)
		if behind != row || n > 0 && ahead != row+16 {
			t.Errorf("distance %d: rows %d and %d; %d and %d expected", n, behind, ahead, row, row+16)
		}
	}
}

// Keys that change the computation are read, or refused by name; those that MPNet's code ignores
// are ignored.
func TestBadMPNetIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "mpnet-h2-d32").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"relative_attention_num_buckets", 64, []string{"relative_attention_num_buckets", "is 64", "32"}},
		{"relative_attention_num_buckets", 0, []string{"relative_attention_num_buckets", "is 0"}},
		{"num_attention_heads", 4, []string{"relative_attention_bias.weight", "[32 2]", "[32 4]"}},
		{"num_attention_heads", 0, []string{"num_attention_heads"}},
		{"hidden_act", "mish", []string{"hidden_act", "mish"}},
		{"max_position_embeddings", 2, []string{"pad_token_id", "no position"}},
		{"num_hidden_layers", 2, []string{"encoder.layer.1.", "no such tensor"}},
		{"num_hidden_layers", -1, []string{"num_hidden_layers"}},
		{"vocab_size", 46, []string{"word_embeddings.weight", "[47 64]"}},
		{"is_decoder", true, []string{"is_decoder"}},
	} {
		refused(t, dev, edit(t, from, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	for key, value := range map[string]any{
		"pad_token_id": 7, "type_vocab_size": 2, "position_embedding_type": "relative_key",
	} {
		m, _ := load(t, dev, edit(t, from, configFile, map[string]any{key: value}), Options{Task: Embed})
		if m.MaxSeqLen != 198 || m.TypeVocab != 0 {
			t.Errorf("%s: %d tokens, %d types", key, m.MaxSeqLen, m.TypeVocab)
		}
	}
}

// Looking at the files finds the table of distances, which is read on the host.
func TestMPNetLeavesNothingOver(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	r, err := Check(golden.Open(t, "mpnet-h2-d32").Dir, dev, Options{Task: Embed})
	if err != nil || len(r.Problems) > 0 || len(r.LeftOver) > 0 {
		t.Errorf("%v: %+v", err, r)
	}
}
