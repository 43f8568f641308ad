package arch

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// GTE and NomicBERT.
var postNormCases = []string{"gte-multilingual", "gte-en", "gte-types", "gte-arctic",
	"nomic-v15", "nomic-biases", "nomic-saved", "nomic-stretched"}

// longPostNorms have texts that would take long on every device.
var longPostNorms = []string{"nomic-long"}

// oddPostNorms have heads without a GPU kernel.
var oddPostNorms = []string{"gte-saved"}

func TestPostNormStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(postNormCases, oddPostNorms) {
			t.Run(name, func(t *testing.T) {
				c := golden.Open(t, name)
				m, r := loadStates(t, dev, c.Dir, compute)
				if err := compareStates(t, m, r, c); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestPostNormGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(postNormCases, oddPostNorms, longPostNorms) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.3 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

// What published directories are for is read from their files, whatever class config.json names.
func TestPostNormDetection(t *testing.T) {
	for name, want := range map[string]Task{
		"gte-multilingual": Tag, // NewForTokenClassification alone is a tagger
		"classify-gte":     Classify, "tag-nomic": Tag, "text-gte-embed": Embed, "text-gte-stella": Embed,
		"text-gte-rerank": Classify, "text-gte-sparse": Splade, "text-nomic": Embed, "nomic-v15": Embed,
	} {
		if task, _, err := Detect(golden.Open(t, name).Dir); err != nil || task != want {
			t.Errorf("%s: %s, %v; want %s", name, task, err, want)
		}
	}
	// gte-multilingual-base names that class beside its modules.
	dir := edit(t, golden.Open(t, "text-gte-embed").Dir, configFile,
		map[string]any{"architectures": []string{"NewForTokenClassification"}})
	if task, _, err := Detect(dir); err != nil || task != Embed {
		t.Errorf("%s, %v", task, err)
	}
}

// transformers' GTE has GELU before the words' logits; the code of repositories has hidden_act.
func TestActivationBeforeGteWords(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for name, want := range map[string]engine.Act{"gte-saved": engine.GELU, "gte-arctic": engine.SiLU} {
		dir := edit(t, golden.Open(t, name).Dir, configFile, map[string]any{"hidden_act": "silu"})
		m, _ := load(t, dev, dir, Options{Task: Embed})
		if got := m.encoder.heads().masked.transform.act; got != want {
			t.Errorf("%s: activation %d, want %d", name, got, want)
		}
	}
}
