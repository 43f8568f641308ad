package arch

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// savedReleases are the releases of sentence-transformers with which tools/golden/saved.py saves
// each kind of model.
var savedReleases = []string{"5.3.0", "5.4.1", "6.2.0"}

// The same model gives the same answers, bit for bit, whichever release saved it, and they agree
// with those of sentence-transformers.
func TestSavedByEachRelease(t *testing.T) {
	dev := open(t, engine.Options{})
	for kind, want := range map[string]struct {
		task   Task
		labels []string
		act    Activation
		length int
		output string
	}{
		"embedder": {Embed, nil, Identity, 20, "vectors"},
		"sparse":   {Splade, nil, Identity, 40, "splade"},
		"router":   {Splade, nil, Identity, 40, "splade"},
		"reranker": {Classify, []string{"LABEL_0"}, Identity, 30, "scores"},
		"labels":   {Classify, []string{"contradiction", "entailment", "neutral"}, Identity, 30, "scores"},
	} {
		var first []float32
		for _, release := range savedReleases {
			c := golden.Open(t, "saved-"+kind+"/"+release)
			name := kind + " " + release
			task, labels, err := Detect(c.Dir)
			if err != nil || task != want.task || !slices.Equal(labels, want.labels) {
				t.Errorf("%s is taken for %s with labels %q, %v; want %s with %q",
					name, task, labels, err, want.task, want.labels)
			}
			m, r := load(t, dev, c.Dir, Options{Task: want.task, Compute: engine.ComputeF32})
			if m.MaxSeqLen != want.length || !slices.Equal(m.Labels, want.labels) ||
				m.Activation != want.act {
				t.Errorf("%s: %d tokens, labels %q, activation %d; want %+v",
					name, m.MaxSeqLen, m.Labels, m.Activation, want)
			}
			reference, shape := c.Float32(want.output)
			var got []float32
			switch b := goldenBatch(c); want.task {
			case Embed:
				got = embed(t, m, r, b, m.Normalize)
				if m.Dim != 12 || m.DefaultPrompt != "query" || m.Prompts["query"] != "query: " ||
					len(m.Prompts) != 2 {
					t.Errorf("%s: %d columns, prompts %q, default %q",
						name, m.Dim, m.Prompts, m.DefaultPrompt)
				}
			case Splade:
				got = sparseRows(t, r, m.Program(), b, m.Vocab)
				checkQueryWeights(t, c, m)
			default:
				got = values(t, r, engine.Batch{Program: m.Program()}, b, 0, shape[0]*shape[1])
			}
			if d := golden.Compare(got, reference); d.MaxAbs > 1e-5 || d.Cosine < 0.9999999 {
				t.Errorf("%s: %v", name, d)
			}
			if first == nil {
				first = got
			}
			if err := sameBits(got, first); err != nil {
				t.Errorf("%s: other answers than of %s: %v", name, savedReleases[0], err)
			}
		}
	}
}

// checkQueryWeights compares the table for queries with the output of encode_query on the texts'
// tokens.
func checkQueryWeights(t *testing.T, c *golden.Case, m *Model) {
	t.Helper()
	if !strings.Contains(c.Dir, "router") {
		if m.QueryWeights != nil {
			t.Errorf("%s: a table for queries", c.Dir)
		}
		return
	}
	want, shape := c.Float32("queries")
	b := goldenBatch(c)
	got := make([]float32, len(want))
	for i := range b.seqs() {
		for _, id := range b.ids[b.cu[i]+1 : b.cu[i+1]-1] { // queries have no special tokens
			got[i*shape[1]+int(id)] = m.QueryWeights[id]
		}
	}
	if err := sameBits(got, want); err != nil {
		t.Errorf("%s: queries: %v", c.Dir, err)
	}
}

// TokenizerFolder finds the tokenizer's files where sentence-transformers does.
func TestTokenizerFolder(t *testing.T) {
	router := golden.Open(t, "saved-router/6.2.0").Dir
	for dir, want := range map[string]string{router: filepath.Join(router, "document_0_Transformer"),
		golden.Open(t, "saved-embedder/6.2.0").Dir: golden.Open(t, "saved-embedder/6.2.0").Dir,
		golden.Open(t, "bert-erf-h128").Dir:        golden.Open(t, "bert-erf-h128").Dir} {
		if got, err := TokenizerFolder(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	// the folder of the first module, whichever kind of vocabulary it has
	for name, own := range map[string]bool{"tokenizer.json": true, "vocab.txt": true, "vocab.json": true,
		"sentencepiece.bpe.model": true, "spm.model": true, "spiece.model": true, "tokenizer.model": true,
		"merges.txt": false} {
		dir := t.TempDir()
		want := filepath.Join(dir, "0_Transformer")
		if err := os.Mkdir(want, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, modulesFile), []byte(`[{"path":"0_Transformer","type":"x.Transformer"}]`))
		write(t, filepath.Join(want, name), nil)
		if !own {
			want = dir
		}
		if got, err := TokenizerFolder(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

// Each setting of a Transformer module is honoured or refused by name.
func TestTransformerConfigurations(t *testing.T) {
	for text, want := range map[string]struct {
		length int64
		err    string
	}{
		`{}`:                      {0, ""},
		`{"max_seq_length": 7}`:   {7, ""},
		`{"max_seq_length":null}`: {0, ""},
		`{"max_seq_length": 7, "processor_kwargs": {"model_max_length": 6}}`:                 {6, ""},
		`{"max_seq_length": 7, "tokenizer_args": {"model_max_length": 5, "use_fast": true}}`: {5, ""},
		`{"max_seq_length": 7, "processing_kwargs": {"text": {"max_length": 4, "truncation": true, "padding": "max_length"}, "image": {"size": 9}}}`: {
			4, "",
		},
		`{"processing_kwargs": {"common": {"max_length": 9, "return_tensors": "pt"}, "text": {"max_length": 8}}}`: {
			8, "",
		},
		`{"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": ["last_hidden_state"]}}, "unpad_inputs": false}`: {
			0, "",
		},

		`{"transformer_task": "any-to-any"}`: {0,
			`transformer_task: "any-to-any" is not supported; feature-extraction, fill-mask, sequence-classification and text-generation are`},
		`{"transformer_task": "text-generation", "processing_kwargs": {"chat_template": {"add_generation_prompt": true}}}`: {
			0, "",
		},
		`{"transformer_task": "text-generation", "processing_kwargs": {"chat_template": {"documents": []}}}`: {
			0, "chat_template.documents",
		},
		`{"transformer_task": "text-generation", "processing_kwargs": {"chat_template": {"restore_suffix": false}}}`: {
			0, "chat_template.restore_suffix is false",
		},
		`{"transformer_task": "retrieval"}`: {0, `"retrieval" is not supported`},
		`{"transformer_task": "fill-mask", "modality_config": {"image": {"method": "forward", "method_output_name": "logits"}}}`: {
			0, "modality_config: names no text",
		},
		`{"transformer_task": "fill-mask", "modality_config": {"message": {"method": "forward"}, "text": {"method": "forward"}}}`: {
			0, "chat messages",
		},
		`{"modality_config": {"message": {"method": "forward"}, "text": {"method": "forward"}}}`: {
			0, "chat messages",
		},
		`{"modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -2]}}}`: {
			0, "modality_config: takes",
		},
		`{"modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}}`: {0, ""},
		`{"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}`: {
			0, "only last_hidden_state of forward",
		},
		`{"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -2]}}}`: {
			0, "modality_config: takes",
		},
		`{"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "get_text_features", "method_output_name": "last_hidden_state"}}}`: {
			0, "get_text_features",
		},
		`{"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}, "module_output_name": "sentence_embedding"}`: {
			0, "module_output_name",
		},
		`{"processing_kwargs": {"text": {"add_special_tokens": false}}}`: {0,
			"processing_kwargs: text.add_special_tokens is false"},
		`{"processing_kwargs": {"common": {"truncation": "only_first"}}}`: {0,
			"common.truncation is only_first"},
		`{"processing_kwargs": {"text": {"max_length": 4.5}}}`: {0, "text.max_length is 4.5"},
		`{"processing_kwargs": {"text": {"max_length": 0}}}`:   {0, "processing_kwargs: gives a length of 0"},
		`{"processor_kwargs": {"model_max_length": -1}}`:       {0, "processor_kwargs: gives a length of -1"},
		`{"config_kwargs": {"is_causal": false}}`:              {0, "config_kwargs: is_causal is false"},
		`{"config_args": {"num_hidden_layers": 2}}`:            {0, "config_args: num_hidden_layers is 2"},
		`{"model_args": {"rotary_scaling_factor": 2}}`:         {0, "model_args: rotary_scaling_factor is 2"},
		`{"tokenizer_args": {"add_eos_token": true}}`:          {0, "tokenizer_args: add_eos_token is true"},
		`{"processor_kwargs": {"truncation_side": "left"}}`:    {0, "processor_kwargs: truncation_side is"},
		`{"query_length": 32}`:                                 {0, "query_length: is 32"},
		`{"max_seq_length": 9, "document_length": 180}`:        {0, "document_length: is 180"},
		`{"query_expansion": {"strategy": "fixed"}}`:           {0, "query_expansion: is"},
		`{"query_length": null, "max_seq_length": 9}`:          {9, ""},
		`{"model_kwargs": [1]}`:                                {0, "model_kwargs: is [1]; an object"},
		`{"tokenizer_name_or_path": "acme/other"}`:             {0, "tokenizer_name_or_path: is"},
		`{"model_kwargs": {"attn_implementation": "eager", "dtype": "bfloat16"}, "config_args": null}`: {
			0, "",
		},
		`{"processor_kwargs": {"padding_side": "left"}, "tokenizer_name_or_path": null}`: {0, ""},
	} {
		got, err := readTransformer(fstest.MapFS{"a/" + limitsFile: {Data: []byte(text)}}, "a")
		var refused *ModelError
		switch {
		case want.err == "" && (err != nil || got.maxSeqLen != want.length):
			t.Errorf("%s: %+v, %v", text, got, err)
		case want.err != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), want.err) ||
			refused.File != "a/"+limitsFile):
			t.Errorf("%s: %v; want %q", text, err, want.err)
		}
	}
	for _, name := range transformerFiles {
		got, err := readTransformer(
			fstest.MapFS{name: {Data: []byte(`{"max_seq_length": 3, "do_lower_case": true}`)}}, "")
		if err != nil || got.maxSeqLen != 3 || !got.lowerCase {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Files that contradict one another, and modules of another kind of model, are refused by name.
func TestBadSavedModelsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	const transformer = `{"path":"","type":"x.Transformer"}`
	for what, c := range map[string]struct {
		task       Task
		from, file string
		content    string
		want       string
	}{
		"a reranker as an embedder": {Embed, "saved-reranker/6.2.0", modulesFile,
			`[` + transformer + `,{"path":"","type":"x.Pooling"}]`,
			`transformer_task: is "sequence-classification"; a model for the task embed needs "feature-extraction"`},
		"an embedder as a reranker": {Classify, "saved-embedder/6.2.0", modulesFile, `[` + transformer + `]`,
			`needs "sequence-classification"`},
		"an embedder as sparse": {Splade, "saved-embedder/5.3.0", "", "",
			`modules.json: type: "sentence_transformers.models.Dense" is not supported`},
		"a reranker with a Dense": {Classify, "saved-reranker/6.2.0", modulesFile,
			`[` + transformer + `,{"path":"1_Dense","type":"st.Dense"}]`, `"st.Dense" is not supported`},
		"a score of logits": {Classify, "saved-reranker/6.2.0", modulesFile,
			`[` + transformer + `,{"path":"1","type":"st.LogitScore"}]`, `"st.LogitScore"`},
		"an activation": {Classify, "saved-reranker/6.2.0", promptsFile, `{"activation_fn":"torch.nn.Tanh"}`,
			`config_sentence_transformers.json: activation_fn: "torch.nn.Tanh"`},
		"a sparse auto-encoder": {Splade, "saved-sparse/6.2.0", modulesFile, `[` + transformer +
			`,{"path":"1_SpladePooling","type":"x.SpladePooling"},{"path":"2","type":"st.SparseAutoEncoder"}]`,
			`"st.SparseAutoEncoder"`},
		"sparse without pooling": {Splade, "saved-sparse/6.2.0", modulesFile,
			`[{"path":"","type":"x.SpladePooling"}]`, `"x.SpladePooling"`},
		"kept weights": {Splade, "saved-sparse/6.2.0", promptsFile, `{"max_active_dims":64}`,
			"max_active_dims: is 64"},
		"kept components": {Embed, "saved-embedder/6.2.0", promptsFile, `{"truncate_dim":0}`,
			"truncate_dim: is 0"},
		"normalised tokens": {Embed, "saved-embedder/6.2.0", "3_Normalize/config.json",
			`{"module_input_name":"token_embeddings"}`, `3_Normalize/config.json: module_input_name`},
		"an embedder by routes": {Embed, "saved-router/6.2.0", "", "", "Router"},
		"tokens by a mask": {ColBERT, "saved-embedder/6.2.0", modulesFile, `[` + transformer +
			`,{"path":"2_Dense","type":"x.Dense"},{"path":"","type":"st.MultiVectorMask"}]`,
			`"st.MultiVectorMask"`},
		"no routes": {Splade, "saved-router/6.2.0", routerFile, `{}`, "has 0 routes"},
		"a route without modules": {Splade, "saved-router/6.2.0", routerFile, `{"structure":{"document":[]}}`,
			`route "document" has 0 modules`},
		"no route of documents": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"a":"x.Transformer"},"structure":{"query":["a"]}}`, "no route named document"},
		"a module without type": {Splade, "saved-router/6.2.0", routerFile,
			`{"structure":{"document":["a"]}}`, `"a" of route "document" is not among the types`},
		"a route outside": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"../a":"x.Transformer"},"structure":{"document":["../a"]}}`, `leads out`},
		"mapped routes": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"a":"x.T"},"structure":{"document":["a"]},"parameters":{"route_mappings":{"b":"document"}}}`,
			"route_mappings"},
		"queries with an encoder": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"a":"x.Transformer","p":"x.SpladePooling","b":"x.Transformer"},"structure":{"document":["a","p"],"query":["b","p"]}}`,
			"the route query must be one SparseStaticEmbedding"},
		"three routes": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"a":"x.Transformer","p":"x.SpladePooling"},"structure":{"document":["a","p"],"query":["a","p"],"c":["p"]}}`,
			"has 3 routes"},
		"documents by a table": {Splade, "saved-router/6.2.0", routerFile,
			`{"types":{"a":"x.SparseStaticEmbedding"},"structure":{"document":["a"],"query":["a"]}}`,
			`router_config.json: type: module 0 is "x.SparseStaticEmbedding"`},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Open(t, c.from).Dir)); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			write(t, filepath.Join(dir, c.file), []byte(c.content))
		}
		m, err := Load(dir, dev, Options{Task: c.task})
		var e *ModelError
		if m != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}

// A saved truncate_dim keeps the first components, as many as there are at most.
func TestTruncateDim(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	unit := golden.Open(t, "st-cls-normalize")
	dir := edit(t, unit.Dir, promptsFile, map[string]any{"truncate_dim": 5})
	m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
	want, shape := unit.Float32("vectors")
	for i, got := 0, embed(t, m, r, goldenBatch(unit), m.Normalize); i < shape[0]; i++ {
		d := golden.Compare(got[i*5:(i+1)*5], want[i*shape[1]:i*shape[1]+5])
		if d.Cosine < 0.9999999 || d.NormRatio <= 1 {
			t.Errorf("text %d, cut and normalised: %v", i, d)
		}
	}
	c := golden.Open(t, "st-mean")
	all, shape := c.Float32("vectors")
	for content, want := range map[string]int{
		`{"truncate_dim":5}`: 5, `{"truncate_dim":null}`: 32, `{"truncate_dim":99}`: 32,
	} {
		dir := edit(t, c.Dir, configFile, nil)
		write(t, filepath.Join(dir, promptsFile), []byte(content))
		m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
		if m.Dim != want {
			t.Fatalf("%s: %d columns, want %d", content, m.Dim, want)
		}
		got := embed(t, m, r, goldenBatch(c), m.Normalize)
		for i := range shape[0] {
			if d := golden.Compare(got[i*m.Dim:(i+1)*m.Dim], all[i*shape[1]:i*shape[1]+
				want]); d.MaxAbs > 1e-5 {
				t.Errorf("%s: text %d: %v", content, i, d)
			}
		}
	}
}

// A table for queries is refused if it lacks a weight for some token, or has one that is not
// finite.
func TestBadQueryTablesAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	table := make([]float32, 85)
	for what, c := range map[string]struct {
		tensor weightstest.Tensor
		want   string
	}{
		"none": {weightstest.Float32("other", []int64{85}, table...),
			"query_0_SparseStaticEmbedding/model.safetensors: weight: no such vector"},
		"a matrix": {weightstest.Float32("weight", []int64{5, 17}, table...), "weight: no such vector"},
		"a NaN": {weightstest.Float32("weight", []int64{2}, 1, float32(math.NaN())),
			"token 1 has the weight NaN; it must be finite"},
		"infinite": {weightstest.Float32("weight", []int64{1}, float32(math.Inf(-1))),
			"token 0 has the weight -Inf"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Open(t, "saved-router/6.2.0").Dir)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "query_0_SparseStaticEmbedding", weights.SingleFile),
			weightstest.Encode(nil, c.tensor))
		m, err := Load(dir, dev, Options{Task: Splade})
		var e *ModelError
		if m != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}

// A Pooling file is read as sentence-transformers reads it: flags have an order of their own and no
// effect beside a name, and a file that sets no mode means the mean of tokens.
func TestPoolingFiles(t *testing.T) {
	for content, want := range map[string][]engine.Pooling{
		`{}`:                                 {engine.PoolMean},
		`{"pooling_mode_mean_tokens":false}`: {engine.PoolMean},
		`{"pooling_mode":"cls"}`:             {engine.PoolCLS},
		`{"pooling_mode":["lasttoken"]}`:     {engine.PoolLast},
		`{"pooling_mode":["mean","cls"]}`:    {engine.PoolMean, engine.PoolCLS},
		`{"pooling_mode":"max","pooling_mode_mean_tokens":true}`: {engine.PoolMax},
		`{"pooling_mode_lasttoken":true,"pooling_mode_weightedmean_tokens":true,` +
			`"pooling_mode_mean_sqrt_len_tokens":true,"pooling_mode_mean_tokens":true,` +
			`"pooling_mode_max_tokens":true,"pooling_mode_cls_token":true}`: {
			engine.PoolCLS, engine.PoolMax, engine.PoolMean, engine.PoolMeanSqrt,
			engine.PoolWeightedMean, engine.PoolLast},
		`{"pooling_mode_mean_tokens":true,"include_prompt":false}`: {engine.PoolMean},
	} {
		got, err := readPooling(fstest.MapFS{"1_Pooling/" + configFile: {Data: []byte(content)}}, "1_Pooling")
		if err != nil || !slices.Equal(got.modes, want) ||
			got.skipsPrompt != strings.Contains(content, "include_prompt") {
			t.Errorf("%s: %v, %v; want %v", content, got, err, want)
		}
	}
}

// An adapter that sentence-transformers saved with its modules is refused as a model.
func TestAdapterWithModulesIsNoModel(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, modulesFile),
		[]byte(`[{"path":"","type":"x.Transformer"},{"path":"1_Pooling","type":"x.Pooling"}]`))
	write(t, filepath.Join(dir, adapterFile), []byte(`{}`))
	if _, _, err := Detect(dir); err == nil || !strings.Contains(err.Error(), "LoRA adapter and no model") {
		t.Errorf("%v", err)
	}
}
