package arch

import (
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Keys that change what a EuroBERT computes are read, or refused by their names.
func TestBadEurobertIsRefused(t *testing.T) {
	dev, from := open(t, engine.Options{Threads: 1}), golden.Open(t, "classify-eurobert").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"classifier_pooling", "max", []string{"classifier_pooling", "max", "bos, late and mean"}},
		{"clf_pooling", "mean", []string{"clf_pooling", "mean", "late"}},
		{"mlp_bias", true, []string{"mlp_bias", "not supported"}},
		{"num_hidden_layers", 1, []string{"model.layers.1.", "block 1; num_hidden_layers is 1"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
}

// The code of the first repositories computes what transformers does, with its own epsilon where
// the file has none.
func TestEurobertOfARepository(t *testing.T) {
	dev, from := open(t, engine.Options{Threads: 1}), golden.Open(t, "classify-eurobert").Dir
	for _, at := range []string{"", "EuroBERT/EuroBERT-210m--"} {
		m, _ := load(t, dev, edit(t, from, "config.json", map[string]any{"auto_map": map[string]string{
			"AutoConfig": at + "configuration_eurobert.EuroBertConfig",
			"AutoModel":  at + "modeling_eurobert.EuroBertModel",
		}, "rms_norm_eps": nil}), Options{Task: Classify})
		if eps := m.encoder.(*eurobert).config.RMSNormEps; m.Arch != "eurobert" || eps != 1e-5 {
			t.Errorf("%q is %s with an epsilon of %g", at, m.Arch, eps)
		}
	}
}
