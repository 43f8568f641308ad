package arch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// A head that is missing from the files or contradicts them is refused; the error names the tensor
// or key.
func TestBadHeadsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for what, c := range map[string]struct {
		task   Task
		from   string
		file   string
		change map[string]any
		parts  []string
	}{
		"no classifier": {Classify, "bert-erf-h128", "config.json", nil,
			[]string{"pooler.dense.weight", "no such tensor", "[128 128]"}},
		"no tagger": {Tag, "bert-erf-h128", "config.json", nil,
			[]string{"classifier.weight", "no such tensor", "[2 128]"}},
		"no word logits": {Splade, "xlmr-h64", "config.json", nil,
			[]string{"lm_head.dense.weight", "no such tensor"}},
		"no projection": {ColBERT, "bert-erf-h128", "config.json", nil,
			[]string{"linear.weight", "not a ColBERT model"}},
		"no heads of BGE-M3": {BGEM3, "xlmr-h64", "config.json", nil,
			[]string{"colbert_linear.pt: is missing"}},
		"label too many": {Classify, "classify-xlmr", "config.json",
			map[string]any{"id2label": map[string]string{"0": "a", "1": "b"}},
			[]string{"classifier.out_proj.weight", "[1 64]", "[2 64]"}},
		"label missing": {Classify, "classify-bert", "config.json",
			map[string]any{"id2label": map[string]string{"0": "a", "2": "b"}},
			[]string{"id2label", "none for logit 1"}},
		"labels not numbered": {Tag, "tag-bert", "config.json",
			map[string]any{"id2label": map[string]string{"a": "b"}}, []string{"config.json"}},
		"labels by name": {Classify, "classify-bert", "config.json",
			map[string]any{"id2label": nil, "label2id": map[string]int{"a": 0, "b": 3}},
			[]string{"label2id", "none for logit 1"}},
		"labels negative": {Tag, "tag-bert", "config.json",
			map[string]any{"id2label": nil, "label2id": nil, "num_labels": -1},
			[]string{"num_labels: is -1"}},
		"activation": {Classify, "classify-bert", "config.json",
			map[string]any{"sentence_transformers": map[string]any{"activation_fn": "torch.nn.Tanh"}},
			[]string{"activation_fn", "torch.nn.Tanh", "Sigmoid and Identity"}},
		"untied without matrix": {Splade, "masked-bert", "config.json",
			map[string]any{"tie_word_embeddings": false},
			[]string{"cls.predictions.decoder.weight", "no such tensor"}},
		"SPLADE strategy": {Splade, "splade-bert", "1_SpladePooling/config.json",
			map[string]any{"pooling_strategy": "sum"},
			[]string{"1_SpladePooling/config.json: pooling_strategy", "sum"}},
		"SPLADE activation": {Splade, "splade-bert", "1_SpladePooling/config.json",
			map[string]any{"activation_function": "gelu"}, []string{"activation_function", "log1p_relu"}},
		"dense width": {ColBERT, "colbert-dense", "2_Dense/config.json", map[string]any{"in_features": 63},
			[]string{"2_Dense/config.json: in_features: is 63", "gives 64"}},
		"dense shape": {ColBERT, "colbert-dense", "3_Dense/config.json", map[string]any{"out_features": 25},
			[]string{"3_Dense/model.safetensors: linear.weight", "[24 80]", "[25 80]"}},
		"residual and act": {ColBERT, "colbert-dense", "1_Dense/config.json",
			map[string]any{"activation_function": "torch.nn.modules.activation.Tanh"},
			[]string{"use_residual", "without an activation"}},
		"residual without": {ColBERT, "colbert-dense-act", "3_Dense/config.json",
			map[string]any{"use_residual": true}, []string{"residual.weight", "48 to 24"}},
		"residual of sentences": {Embed, "st-last-dense-identity", "2_Dense/config.json",
			map[string]any{"use_residual": true}, []string{"use_residual", "tokens only"}},
		"pooling of tokens": {Embed, "st-last-dense-identity", "2_Dense/config.json",
			map[string]any{"module_input_name": "token_embeddings"}, []string{"only sentence_embedding"}},
	} {
		dir := golden.Open(t, c.from).Dir
		if c.change != nil {
			dir = edit(t, dir, c.file, c.change)
		}
		m, err := Load(dir, dev, Options{Task: c.task})
		if err == nil {
			m.Close()
		}
		var e *ModelError
		if !errors.As(err, &e) {
			t.Errorf("%s: error is %v, want a *ModelError", what, err)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %q", what, part, err)
			}
		}
	}
}

// A program can give only what the model was loaded for.
func TestRequestsThatNeedAnotherHead(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	m, _ := load(t, dev, golden.Open(t, "st-mean").Dir, Options{Task: Embed})
	for _, give := range []Outputs{Give(OutSparse), Give(OutTokenWeights), Give(OutMulti), Give(OutMaxSim),
		Give(OutLogits), Give(OutTokenLogits), Give(OutDense, OutLogits), Give("anything")} {
		want := Want{Give: give}
		p, err := m.Record(want)
		var e *ModelError
		if !errors.As(err, &e) || p != nil || !strings.Contains(err.Error(), "loaded for the task embed") {
			t.Errorf("%+v: %v, want a *ModelError", want, err)
		}
	}
}

// Behind a router sentence-transformers keeps the documents' encoder in a separate folder. SizeOf
// reads its weights there, too.
func TestEncoderBehindARouter(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "splade-bert-log1p").Dir
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "document_0_MLMTransformer"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "document_0_MLMTransformer", "1_SpladePooling"),
		filepath.Join(dir, "document_1_SpladePooling")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "query_0_MLMTransformer", configFile), []byte(`{}`))
	write(t, filepath.Join(dir, modulesFile),
		[]byte(`[{"path":"","type":"sentence_transformers.base.modules.router.Router"}]`))
	m, _ := load(t, dev, dir, Options{Task: Splade})
	if c, err := readSparseChain(files.Dir(dir)); err != nil || c.transform != engine.SparseLogLog ||
		m.Own() != (Want{Give: Give(OutSparse)}) {
		t.Errorf("transform %d, own %+v, %v", c.transform, m.Own(), err)
	}
	if n, err := SizeOf(dir, dev, Options{Task: Splade, Compute: engine.ComputeF32}); err != nil ||
		n.Packed < 100_000 {
		t.Errorf("estimate of %+v, %v", n, err)
	}
}
