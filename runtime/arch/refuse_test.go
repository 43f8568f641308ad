package arch

import (
	"bytes"
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

// refused loads dir, which must fail with a *ModelError whose text has all of its parts. The
// device's Close at the end of the test panics if the failed load left a weight behind.
func refused(t *testing.T, dev *engine.Device, dir, what string, parts ...string) {
	t.Helper()
	m, err := Load(dir, dev, Options{Task: Embed})
	if m != nil {
		t.Errorf("%s: loaded", what)
	}
	refusedWith(t, err, what, parts...)
}

// refusedWith fails unless err is a ModelError that says all parts.
func refusedWith(t *testing.T, err error, what string, parts ...string) {
	t.Helper()
	var e *ModelError
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, expected a ModelError", what, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "st-mean").Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"hidden_size", 0, []string{"config.json: hidden_size", "8192"}},
		{"hidden_size", nil, []string{"config.json: hidden_size", "missing"}},
		{"hidden_size", 1 << 40, []string{"hidden_size", "8192"}},
		{"hidden_size", -32, []string{"hidden_size"}},
		{"hidden_size", "32", []string{"config.json: hidden_size: is a JSON string", "int64 is wanted"}},
		{"hidden_size", 32.5, []string{"hidden_size"}},
		{"num_attention_heads", 3, []string{"num_attention_heads", "does not divide hidden_size 32"}},
		{"num_hidden_layers", 1000, []string{"num_hidden_layers", "128"}},
		{"intermediate_size", 0, []string{"intermediate_size"}},
		{"vocab_size", 1 << 23, []string{"vocab_size"}},
		{"max_position_embeddings", 0, []string{"max_position_embeddings"}},
		{"type_vocab_size", -1, []string{"type_vocab_size"}},
		{"type_vocab_size", 0, []string{"config.json: type_vocab_size", "is 0", "token_type_embeddings"}},
		{"layer_norm_eps", 0, []string{"layer_norm_eps"}},
		{"layer_norm_eps", 1.5, []string{"layer_norm_eps"}},
		{"hidden_act", "softplus", []string{"hidden_act", "softplus", "gelu_new"}},
		{"position_embedding_type", "relative_key",
			[]string{"position_embedding_type", "relative_key", "absolute"}},
		{"is_decoder", true, []string{"is_decoder"}},
		{"add_cross_attention", true, []string{"cross-attention"}},
		{"model_type", "mamba", []string{"model_type", "mamba", "bert"}},
		{"model_type", nil, []string{"model_type"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	for key, parts := range map[string][]string{
		"num_attention_heads": {"config.json: num_attention_heads", "heads of 512 columns", "at most 256"},
	} {
		dir := edit(t, from, "config.json", map[string]any{"hidden_size": 512, key: 1})
		refused(t, dev, dir, key, parts...)
	}
	// The checkpoint has hidden size 32, intermediate size 70 and vocabulary 101. A configuration
	// that says otherwise is refused at the first tensor that contradicts it; the error has both
	// shapes.
	for _, c := range []struct {
		key   string
		value int
		parts []string
	}{
		{"hidden_size", 64, []string{"embeddings.word_embeddings.weight", "[101 32]", "[101 64]"}},
		{"vocab_size", 102, []string{"embeddings.word_embeddings.weight", "[101 32]", "[102 32]"}},
		{"max_position_embeddings", 121, []string{"position_embeddings", "[120 32]", "[121 32]"}},
		{"type_vocab_size", 1, []string{"token_type_embeddings", "[2 32]", "[1 32]"}},
		{"intermediate_size", 71,
			[]string{"encoder.layer.0.intermediate.dense.weight", "[70 32]", "[71 32]"}},
		{"num_hidden_layers", 3,
			[]string{"encoder.layer.2.attention.self.query.weight", "no such tensor", "[32 32]"}},
	} {
		refused(t, dev, edit(t, from, "config.json", map[string]any{c.key: c.value}), c.key, c.parts...)
	}
}

// Errors for the other members of BERT's family use their own keys and names.
func TestBadFamilyConfigurationsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, c := range []struct {
		name, key string
		value     any
		parts     []string
	}{
		{"distilbert-h96", "dim", 97, []string{"n_heads: is 3", "divide dim 97"}},
		{"distilbert-h96", "n_layers", nil, []string{"n_layers: is 0 or missing"}},
		{"distilbert-h96", "hidden_dim", 151,
			[]string{"distilbert.transformer.layer.0.ffn.lin1.weight", "[150 96]", "[151 96]"}},
		{"distilbert-h96", "activation", "swoosh", []string{"activation", "swoosh"}},
		{"distilbert-h96", "model_type", "bert", []string{"hidden_size: is 0 or missing"}},
		{"distilbert-h96", "hidden_size", 64, []string{"hidden_size: is 64, and dim is 96"}},
		{"distilbert-h96", "num_attention_heads", 4, []string{"num_attention_heads: is 4, and n_heads is 3"}},
		{"distilbert-h96", "num_hidden_layers", 9, []string{"num_hidden_layers: is 9, and n_layers is"}},
		{"distilbert-h96", "max_position_embeddings", 71,
			[]string{"distilbert.embeddings.position_embeddings", "[70 96]", "[71 96]"}},
		{"xlmr-h64", "pad_token_id", 67, []string{"pad_token_id: is 67", "no position of 68"}},
		{"xlmr-h64", "pad_token_id", -1, []string{"pad_token_id: is -1"}},
		{"xlmr-h64", "model_type", "bert",
			[]string{"embeddings.word_embeddings.weight", "another architecture"}},
	} {
		refused(t, dev, edit(t, golden.Open(t, c.name).Dir, "config.json", map[string]any{c.key: c.value}),
			c.name+" "+c.key, c.parts...)
	}
	other := edit(t, golden.Open(t, "distilbert-h96").Dir, "config.json",
		map[string]any{"dim": nil, "hidden_size": 96, "n_heads": nil, "num_attention_heads": 3})
	if m, _ := load(t, dev, other, Options{Task: Embed}); m.Dim != 96 {
		t.Errorf("DistilBERT by the names of others has %d columns", m.Dim)
	}
	for name, want := range map[string]int{
		"xlmr-h64": 66, "roberta-pad5-h128": 35, "camembert-h32": 32, "distilbert-h96": 70,
	} {
		if m, _ := load(t, dev, golden.Open(t, name).Dir, Options{Task: Embed}); m.MaxSeqLen != want {
			t.Errorf("%s takes %d tokens, expected %d", name, m.MaxSeqLen, want)
		}
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "st-mean-dense-tanh-normalize-prompts").Dir
	modules := func(list string) func(string) {
		return func(dir string) { write(t, filepath.Join(dir, modulesFile), []byte(list)) }
	}
	put := func(name, text string) func(string) {
		return func(dir string) { write(t, filepath.Join(dir, name), []byte(text)) }
	}
	const head = `{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`
	for what, c := range map[string]struct {
		change func(dir string)
		parts  []string
	}{
		"no config": {func(dir string) { _ = os.Remove(filepath.Join(dir, configFile)) },
			[]string{"config.json: is missing"}},
		"no pooling config": {func(dir string) { _ = os.RemoveAll(filepath.Join(dir, "1_Pooling")) },
			[]string{"1_Pooling/config.json: is missing"}},
		"config not JSON": {put("config.json", "{"), []string{"config.json: is not valid JSON"}},
		"config huge": {put("config.json", `{"a":"`+strings.Repeat("a", maxJSONBytes)+`"}`),
			[]string{"larger than 16 MB"}},
		"config an array": {put("config.json", "[]"), []string{"array"}},
		"no modules":      {modules(`[]`), []string{"modules.json", "0 modules"}},
		"too many modules": {
			modules(`[` + head + strings.Repeat(`,{"path":"","type":"x.Normalize"}`, 20) + `]`),
			[]string{"22 modules"},
		},
		"modules an object": {modules(`{}`), []string{"modules.json", "object"}},
		"path outside": {modules(`[{"path":"../x","type":"x.Transformer"}]`),
			[]string{`"../x" leads out`}},
		"path absolute": {modules(`[{"path":"/etc","type":"x.Transformer"}]`), []string{`"/etc" leads out`}},
		"path through": {modules(`[` + head + `,{"path":"2_Dense/../../x","type":"x.Dense"}]`),
			[]string{"leads out"}},
		"no transformer": {modules(`[{"path":"1_Pooling","type":"x.Pooling"}]`),
			[]string{"begin with its only Transformer"}},
		"two transformers": {modules(`[` + head + `,{"path":"","type":"x.Transformer"}]`),
			[]string{"only Transformer"}},
		"no pooling": {modules(`[{"path":"","type":"x.Transformer"}]`), []string{"no Pooling"}},
		"two poolings": {modules(`[` + head + `,{"path":"1_Pooling","type":"x.Pooling"}]`),
			[]string{"second Pooling"}},
		"dense before pooling": {
			modules(`[{"path":"","type":"x.Transformer"},{"path":"2_Dense","type":"x.Dense"}]`),
			[]string{"before any Pooling"},
		},
		"dense after normalize": {
			modules(`[` + head + `,{"path":"","type":"x.Normalize"},{"path":"2_Dense","type":"x.Dense"}]`),
			[]string{"Dense after Normalize"},
		},
		"unknown module": {modules(`[` + head + `,{"path":"","type":"x.LSTM"}]`),
			[]string{"x.LSTM", "not supported"}},
		"unknown mode": {put("1_Pooling/config.json", `{"pooling_mode":"latent_attention"}`),
			[]string{"1_Pooling/config.json: pooling_mode", `"latent_attention"`,
				"cls, max, mean, mean_sqrt_len_tokens, weightedmean and lasttoken are"}},
		"mode list": {put("1_Pooling/config.json", `{"pooling_mode":["mean",7]}`),
			[]string{"1_Pooling/config.json: pooling_mode", `"7"`}},
		"no modes": {put("1_Pooling/config.json", `{"pooling_mode":[]}`),
			[]string{"1_Pooling/config.json: pooling_mode", "lists 0 modes; 1 to 6"}},
		"seven modes": {put("1_Pooling/config.json",
			`{"pooling_mode":["cls","max","mean","mean","mean","mean","mean"]}`), []string{"lists 7 modes"}},
		"mode number": {put("1_Pooling/config.json", `{"pooling_mode":7}`), []string{"must be a name"}},
		"mode flag": {put("1_Pooling/config.json", `{"pooling_mode_max_tokens":"yes"}`),
			[]string{"1_Pooling/config.json: pooling_mode_max_tokens", "yes", "true and false"}},
		"prompt flag": {put("1_Pooling/config.json", `{"pooling_mode":"mean","include_prompt":0}`),
			[]string{"1_Pooling/config.json: include_prompt", "true and false"}},
		"dense behind several poolings": {put("1_Pooling/config.json", `{"pooling_mode":["mean","max"]}`),
			[]string{"2_Dense/config.json: in_features: is 32", "gives 64"}},
		"dense of another size": {put("2_Dense/config.json", `{"in_features":64,"out_features":20}`),
			[]string{"2_Dense/config.json: in_features: is 64", "gives 32"}},
		"dense without size": {put("2_Dense/config.json", `{"in_features":32}`), []string{"out_features"}},
		"dense of sigmoid": {put("2_Dense/config.json",
			`{"in_features":32,"out_features":20,"activation_function":"torch.nn.modules.activation.Sigmoid"}`),
			[]string{"Sigmoid"}},
		"dense of tokens": {put("2_Dense/config.json",
			`{"in_features":32,"out_features":20,"module_input_name":"token_embeddings"}`),
			[]string{"sentence_embedding"}},
		"dense tensor shape": {put("2_Dense/config.json", `{"in_features":32,"out_features":21}`),
			[]string{"2_Dense/model.safetensors: linear.weight", "[20 32]", "[21 32]"}},
		"default prompt": {put(promptsFile, `{"prompts":{"a":"b"},"default_prompt_name":"c"}`),
			[]string{"default_prompt_name", `"c"`}},
		"prompts a list": {put(promptsFile, `{"prompts":[]}`), []string{"prompts", "array"}},
		"prompt too long": {put(promptsFile, `{"prompts":{"a":"`+strings.Repeat("b", maxPromptBytes+1)+`"}}`),
			[]string{`"a"`, "65536"}},
		"too many prompts": {put(promptsFile, `{"prompts":{"0":""`+manyPrompts()+`}}`),
			[]string{"257 entries"}},
		"no length": {put(limitsFile, `{"max_seq_length":0}`), []string{"max_seq_length"}},
	} {
		dir := edit(t, from, "config.json", nil)
		c.change(dir)
		refused(t, dev, dir, what, c.parts...)
	}
}

func manyPrompts() string {
	var b strings.Builder
	for i := range maxPrompts {
		b.WriteString(`,"` + strings.Repeat("x", i+1) + `":""`)
	}
	return b.String()
}

func TestBadWeightsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, "st-mean").Dir

	dir := edit(t, from, "config.json", nil)
	if err := os.Remove(filepath.Join(dir, weights.SingleFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, dev, Options{Task: Embed}); !errors.Is(err, weights.ErrNoWeights) {
		t.Errorf("no weights: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, weights.SingleFile), data[:len(data)/2])
	var format *weights.FormatError
	if _, err := Load(dir, dev, Options{Task: Embed}); !errors.As(err, &format) {
		t.Errorf("half a checkpoint: %v", err)
	}
	write(t, filepath.Join(dir, weights.SingleFile),
		bytes.Replace(data, []byte("word_embeddings"), []byte("worm_embeddings"), 1))
	refused(t, dev, dir, "no word table", "model.safetensors: embeddings.word_embeddings.weight",
		"another architecture")

	// One value of the last packed tensor is not finite: the load must free all that it packed
	// before.
	at := bytes.Index(data, []byte("encoder.layer.1.output.LayerNorm.bias"))
	if at < 0 {
		t.Fatal("the golden checkpoint has changed")
	}
	c, err := weights.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var tensors []weightstest.Tensor
	for _, name := range c.Names() {
		tensor, _ := c.Tensor(name)
		values := weightstest.Bytes(tensor)
		if name == "encoder.layer.1.output.LayerNorm.bias" {
			copy(values, weightstest.Float32("", nil, float32(math.NaN())).Data)
		}
		tensors = append(tensors,
			weightstest.Tensor{Name: name, DType: tensor.DType, Shape: tensor.Shape, Data: values})
	}
	write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, tensors...))
	if _, err := Load(dir, dev, Options{Task: Embed}); !errors.Is(err, engine.ErrCorrupt) ||
		!strings.Contains(err.Error(), "encoder.layer.1.output.LayerNorm.bias") {
		t.Errorf("a NaN: %v", err)
	}
	// Parts of a fused weight in two types, and a type that does not pack.
	for i := range tensors {
		if tensors[i].Name == "encoder.layer.0.attention.self.key.weight" {
			tensors[i].DType, tensors[i].Data = weights.F16, make([]byte, 32*32*2)
		}
	}
	write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, tensors...))
	refused(t, dev, dir, "two types", "attention.self.key.weight", "F16", "F32")
	for i := range tensors {
		if tensors[i].Name == "embeddings.word_embeddings.weight" {
			tensors[i].DType = weights.I32
		}
	}
	write(t, filepath.Join(dir, weights.SingleFile), weightstest.Encode(nil, tensors...))
	refused(t, dev, dir, "integers", "word_embeddings.weight", "has dtype I32")

	if _, err := Load(filepath.Join(dir, "nowhere"), dev, Options{Task: Embed}); err == nil {
		t.Error("a missing directory loads")
	}
	if _, err := Load(from, dev, Options{Task: Embed, Compute: engine.ComputeFP8}); !errors.Is(err,
		engine.ErrUnsupported) {
		t.Errorf("fp8 on a CPU: %v", err)
	}
	info, err := dev.Info()
	if err != nil || info.MemoryWeights != 0 {
		t.Errorf("failed loads left %d bytes of weights (%v)", info.MemoryWeights, err)
	}
}

// A checkpoint with the tensor names of the first BERT release gives the same vectors.
func TestGammaAndBeta(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	c := golden.Open(t, "st-mean")
	data, err := os.ReadFile(filepath.Join(c.Dir, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	// The header's length must not change: "gamma" has one letter less than "weight", so it gets a
	// space in front of the colon.
	data = bytes.ReplaceAll(data, []byte(`LayerNorm.weight":`), []byte(`LayerNorm.gamma": `))
	data = bytes.ReplaceAll(data, []byte(`LayerNorm.bias"`), []byte(`LayerNorm.beta"`))
	dir := edit(t, c.Dir, "config.json", nil)
	write(t, filepath.Join(dir, weights.SingleFile), data)
	old, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32})
	m, _ := load(t, dev, c.Dir, Options{Task: Embed, Compute: engine.ComputeF32})
	b := goldenBatch(c)
	if err := sameBits(embed(t, old, r, b, false), embed(t, m, r, b, false)); err != nil {
		t.Error(err)
	}
}

// Whatever the configuration files hold, reading them ends in an error or in values within the
// stated bounds.
func FuzzConfigurations(f *testing.F) {
	c := golden.Open(f, "st-mean-dense-tanh-normalize-prompts")
	var seed [6][]byte
	names := [6]string{
		configFile, modulesFile, "1_Pooling/config.json", "2_Dense/config.json", promptsFile, limitsFile,
	}
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join(c.Dir, filepath.FromSlash(name)))
		if err != nil {
			f.Fatal(err)
		}
		seed[i] = data
	}
	f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	f.Add([]byte(`{"hidden_size":1e3}`), []byte(`[{"path":"..","type":"Transformer"}]`),
		[]byte(`{"pooling_mode":[null]}`), []byte(`{"in_features":-1}`),
		[]byte(`{"prompts":null,"default_prompt_name":""}`), []byte(`{"max_seq_length":1e99}`))
	f.Fuzz(func(t *testing.T, config, modules, pooling, dense, prompts, limits []byte) {
		dir := fstest.MapFS{}
		for i, data := range [6][]byte{config, modules, pooling, dense, prompts, limits} {
			dir[names[i]] = &fstest.MapFile{Data: data}
		}
		if g, err := readAlbertGroups(dir, 7); err == nil &&
			(len(g.steps(7)) > maxSteps || slices.Max(g.steps(7)) >= int(g.Groups*g.Inner)) {
			t.Errorf("accepted %+v", g)
		}
		for _, family := range []*bertFamily{
			bertNames, robertaNames, distilbertNames, electraNames, albertNames,
		} {
			b, err := readBertConfig(dir, family)
			if err != nil {
				continue
			}
			if b.HiddenSize*b.Layers*b.IntermediateSize <= 0 || b.HiddenSize > 8192 || b.Layers > 128 ||
				b.IntermediateSize > 65536 || b.VocabSize > 1<<22 || b.MaxPositionEmbeddings > 1<<17 ||
				b.Heads*b.headDim() != b.HiddenSize ||
				family.positionsAfterPad && (b.PadTokenID < 0 || b.PadTokenID+1 >= b.MaxPositionEmbeddings) {
				t.Errorf("accepted %+v", b)
			}
		}
		chain, err := readChain(dir)
		if err == nil {
			if len(chain.pooling.modes) < 1 || len(chain.pooling.modes) > maxPoolings ||
				len(chain.dense) > maxModules {
				t.Errorf("accepted %+v", chain)
			}
			for _, path := range append([]string{chain.encoderDir}, densePaths(chain)...) {
				if path != "" && !filepath.IsLocal(path) {
					t.Errorf("accepted the path %q", path)
				}
			}
			if module, err := readTransformer(dir, chain.encoderDir); err == nil {
				if limits, err := readTextLimits(dir, chain.encoderDir, module); err == nil &&
					limits.maxSeqLen < 0 {
					t.Errorf("accepted %+v", limits)
				}
			}
		} else if e := (*ModelError)(nil); !errors.As(err, &e) {
			t.Errorf("%T: %v", err, err)
		}
		if p, err := readPrompts(dir); err == nil && len(p.Prompts) > maxPrompts {
			t.Errorf("accepted %d prompts", len(p.Prompts))
		}
	})
}

func densePaths(c chain) []string {
	var out []string
	for _, d := range c.dense {
		out = append(out, d.module)
	}
	return out
}

// Errors for ELECTRA and ALBERT name their own keys.
func TestBadFactorisedConfigurationsAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	for _, c := range []struct {
		name, key string
		value     any
		parts     []string
	}{
		{"electra-h64", "embedding_size", 0, []string{"embedding_size: is 0 or missing", "8192"}},
		{"electra-h64", "embedding_size", nil,
			[]string{"electra.embeddings.word_embeddings.weight", "[131 24]", "[131 128]"}},
		{"electra-h64", "embedding_size", 64,
			[]string{"electra.embeddings.word_embeddings.weight", "[131 24]", "[131 64]"}},
		{"electra-e64", "embedding_size", 63,
			[]string{"embeddings.word_embeddings.weight", "[97 64]", "[97 63]"}},
		{"electra-h64", "position_embedding_type", "relative_key",
			[]string{"position_embedding_type", "relative_key"}},
		{"albert-h64", "num_hidden_groups", 0, []string{"num_hidden_groups: is 0; 1 to 4"}},
		{"albert-h64", "num_hidden_groups", 5, []string{"num_hidden_groups: is 5; 1 to 4"}},
		{"albert-h64", "num_hidden_groups", 2, []string{
			"albert.encoder.albert_layer_groups.1.albert_layers.0.attention.query.weight", "no such tensor",
		}},
		{"albert-h64", "inner_group_num", 0, []string{"inner_group_num: is 0; 1 to 64"}},
		{"albert-h64", "inner_group_num", 65,
			[]string{"inner_group_num: is 65; 1 to 64 is possible with 4 layers"}},
		{"albert-h64", "inner_group_num", 2,
			[]string{"albert_layers.1.attention.query.weight", "no such tensor"}},
		{"albert-h64", "num_attention_heads", 3, []string{"num_attention_heads: is 3", "does not divide"}},
		{"albert-h64", "model_type", "bert",
			[]string{"embeddings.word_embeddings.weight", "another architecture"}},
	} {
		refused(t, dev, edit(t, golden.Open(t, c.name).Dir, "config.json", map[string]any{c.key: c.value}),
			c.name+" "+c.key, c.parts...)
	}
}

// The zero task is refused.
func TestNoTask(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	_, err := Load(golden.Open(t, "st-mean").Dir, dev, Options{})
	var e *ModelError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "no task") || (Task{}).String() != "none" {
		t.Errorf("%v, task %v", err, Task{})
	}
}

// Options that say nothing sensible are refused together, before any file is read.
func TestOptionsAreValidated(t *testing.T) {
	_, err := Load(t.TempDir(), open(t, engine.Options{Threads: 1}),
		Options{MaxSeqLen: -1, MaxTokens: -2, MaxSeqs: -3})
	for _, want := range []string{"no task", "MaxSeqLen must not be negative; got -1",
		"MaxTokens must not be negative; got -2", "MaxSeqs must not be negative; got -3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
