package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// glinerConfigOf reads the gliner_config.json of a golden case.
func glinerConfigOf(t testing.TB, c *golden.Case) map[string]any {
	t.Helper()
	var config map[string]any
	b, err := os.ReadFile(filepath.Join(c.Dir, glinerFile))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// changedGLiNER returns a folder with a golden case's weights and a changed gliner_config.json. A
// change to encoder_config that is a map changes keys in it; removed keys have the value gone.
func changedGLiNER(t testing.TB, c *golden.Case, changes map[string]any) string {
	t.Helper()
	config := glinerConfigOf(t, c)
	if inner, ok := changes["encoder_config"].(map[string]any); ok {
		maps.Copy(config["encoder_config"].(map[string]any), inner)
		changes = maps.Clone(changes)
		delete(changes, "encoder_config")
	}
	maps.Copy(config, changes)
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == gone })
	out := t.TempDir()
	b, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(out, glinerFile), b, 0o600)
	}
	for _, name := range []string{"model.safetensors", "pytorch_model.bin"} {
		if _, missing := os.Stat(filepath.Join(c.Dir, name)); err == nil && missing == nil {
			err = os.Symlink(filepath.Join(c.Dir, name), filepath.Join(out, name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gone is the value of a key that changedGLiNER removes.
const gone = "\x00gone"

// Configurations that would change the computation, or that no model has, are refused by file, key
// and value.
func TestBadGLiNERConfigIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.Ref})
	span := golden.Open(t, "gliner-bert-span")
	token := golden.Open(t, "gliner-bert-token")
	inner := func(key string, value any) map[string]any {
		return map[string]any{"encoder_config": map[string]any{key: value}}
	}
	for _, x := range []struct {
		of      *golden.Case
		changes map[string]any
		field   string
	}{
		{span, map[string]any{"max_width": 0}, "max_width"},
		{span, map[string]any{"max_width": 1_000_000}, "max_width"},
		{span, map[string]any{"max_width": engine.MaxSpanWidth + 1}, "max_width"},
		{span, map[string]any{"max_len": 0}, "max_len"},
		{span, map[string]any{"max_len": 1_000_000}, "max_len"},
		{span, map[string]any{"hidden_size": 0}, "hidden_size"},
		{span, map[string]any{"hidden_size": 15}, "hidden_size"},
		{span, map[string]any{"hidden_size": 1 << 40}, "hidden_size"},
		{span, map[string]any{"num_rnn_layers": -1}, "num_rnn_layers"},
		{span, map[string]any{"num_rnn_layers": 9}, "num_rnn_layers"},
		{span, map[string]any{"class_token_index": -2}, "class_token_index"},
		{span, map[string]any{"vocab_size": 1 << 30}, "vocab_size"},
		{span, map[string]any{"span_mode": "markerV1"}, "span_mode"},
		{span, map[string]any{"span_mode": "conv_share"}, "span_mode"},
		{span, map[string]any{"span_mode": "?"}, "span_mode"},
		{span, map[string]any{"subtoken_pooling": "max"}, "subtoken_pooling"},
		{span, map[string]any{"subtoken_pooling": ""}, "subtoken_pooling"},
		{span, map[string]any{"words_splitter_type": "spacy"}, "words_splitter_type"},
		{span, map[string]any{"ent_token": ""}, "ent_token"},
		{span, map[string]any{"sep_token": ""}, "sep_token"},
		{span, map[string]any{"labels_decoder": "openai-community/gpt2"}, "labels_decoder"},
		{span, map[string]any{"span_encoder_config": map[string]any{"model_type": "rnn"}},
			"span_encoder_config"},
		{span, map[string]any{"precomputed_prompts_mode": true}, "precomputed_prompts_mode"},
		{span, map[string]any{"model_type": "gliner_streaming_span"}, "model_type"},
		{token, map[string]any{"represent_spans": true}, "represent_spans"},
		{span, map[string]any{"encoder_config": []int{1}}, "encoder_config"},
		{span, map[string]any{"encoder_config": nil, "model_name": "google-t5/t5-small"}, "model_name"},
		{span, inner("model_type", "gpt2"), "encoder_config.model_type"},
		{span, inner("model_type", 7), "encoder_config.model_type"},
		{span, inner("hidden_size", 0), "encoder_config.hidden_size"},
		{span, inner("is_decoder", true), "encoder_config.is_decoder"},
		{span, inner("num_hidden_layers", 3),
			"token_rep_layer.bert_layer.model.encoder.layer.2.attention.self.query.weight"},
		{span, inner("vocab_size", 262), "token_rep_layer.bert_layer.model.embeddings.word_embeddings.weight"},
		// heads that the checkpoint lacks, or has in other sizes
		{token, map[string]any{"span_mode": "markerV0"},
			"span_rep_layer.span_rep_layer.project_start.0.weight"},
		{span, map[string]any{"span_mode": tokenLevel}, "scorer.proj_token.weight"},
		{span, map[string]any{"num_rnn_layers": 2}, "rnn.lstm.weight_ih_l1"},
		{span, map[string]any{"hidden_size": 18}, "token_rep_layer.projection.weight"},
		{span, map[string]any{"hidden_size": 32}, "rnn.lstm.weight_ih_l0"},
	} {
		m, err := Load(changedGLiNER(t, x.of, x.changes), dev, Options{Task: Spans})
		if err == nil {
			m.Close()
		}
		var bad *ModelError
		if !errors.As(err, &bad) || bad.Field != x.field || bad.File == "" || bad.Reason == "" {
			t.Errorf("%v: %v, want an error about %s", x.changes, err, x.field)
		}
	}
}

// Each of the package's other ways to make words and spans is refused by its name.
func TestGLiNERNamesWhatItDoesNotCompute(t *testing.T) {
	for key, values := range map[string][]string{
		"words_splitter_type": {"universal", "spacy", "mecab", "jieba", "hanlp", "janome", "camel", "hindi",
			"stanza", "Whitespace", ""},
		"span_mode": {"markerV1", "markerV2", "query", "mlp", "cat", "conv_conv", "conv_max", "conv_mean",
			"conv_sum", "conv_share", "token_level_2", ""},
	} {
		for _, value := range values {
			dir := fstest.MapFS{glinerFile: {Data: fmt.Appendf(nil, `{%q: %q}`, key, value)}}
			_, err := readGLiNERConfig(dir)
			var bad *ModelError
			if !errors.As(err, &bad) || bad.Field != key ||
				!strings.Contains(bad.Reason, fmt.Sprintf("%q", value)) {
				t.Errorf("%s %q: %v", key, value, err)
			}
		}
	}
}

// A decoder inside a GLiNER is no encoder that is supported, though its layers are.
func TestGLiNEROverAnotherFamilyIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.Ref})
	for _, x := range []struct {
		l    encoder
		arch string
	}{{&qwen{}, "a decoder"}, {nil, "nothing"}} {
		l := &loading{m: &Model{encoder: x.l, Arch: x.arch, device: dev}, p: &packer{}}
		var bad *ModelError
		if err := loadGLiNER(l, &glinerConfig{}); !errors.As(err, &bad) ||
			bad.Field != "encoder_config.model_type" {
			t.Errorf("%s: %v", x.arch, err)
		}
	}
}

// The form of the first releases has the keys of the training beside the model's, and no encoder:
// model_name says which.
func TestFirstGLiNERConfigs(t *testing.T) {
	legacy := `{"lr_encoder": "1e-5", "lr_others": "5e-5", "num_steps": 30000, "warmup_ratio": 0.1,
		"train_batch_size": 8, "eval_every": 2500, "max_width": 12, "model_name": %q, "fine_tune": true,
		"subtoken_pooling": "first", "hidden_size": 768, "span_mode": "markerV0", "dropout": 0.4,
		"root_dir": "logs", "train_data": "data.json", "prev_path": "none", "size_sup": -1, "max_types": 25,
		"shuffle_types": true, "random_drop": true, "max_neg_type_ratio": 1, "max_len": 384,
		"freeze_token_rep": false, "name": "large"}`
	for name, layers := range map[string]int64{"microsoft/deberta-v3-small": 6,
		"microsoft/deberta-v3-large": 24, "microsoft/mdeberta-v3-base": 12} {
		dir := fstest.MapFS{glinerFile: {Data: []byte(fmt.Sprintf(legacy, name))}}
		c, err := readGLiNERConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.RNNLayers != 1 || !c.EmbedEnt || c.MaxLen != 384 || !c.resized() || c.EntToken != "<<ENT>>" {
			t.Errorf("%s: %+v", name, c)
		}
		n, err := c.nested()
		var config struct {
			Layers int64 `json:"num_hidden_layers"`
		}
		if err != nil || json.Unmarshal(n.config, &config) != nil || config.Layers != layers {
			t.Errorf("%s: %v, %s", name, err, n.config)
		}
		added, err := glinerTokens(dir)
		if err != nil || len(added) != 3 || added[1] != "<<ENT>>" || added[2] != "<<SEP>>" {
			t.Errorf("%s: the tokens %q are added, %v", name, added, err)
		}
	}
	known := fstest.MapFS{glinerFile: {Data: []byte(`{"class_token_index": 7, "vocab_size": 9}`)}}
	if added, err := glinerTokens(known); err != nil || added != nil {
		t.Errorf("with ids in the configuration %q are added, %v", added, err)
	}
	if added, err := Embed.AddedTokens(t.TempDir()); err != nil || added != nil {
		t.Errorf("an embedder: %q, %v", added, err)
	}
}

// Markers that are no tokens, and an id that is another token's, are refused.
func TestGLiNERMarkersAreTokens(t *testing.T) {
	ids := map[string]int32{"<<ENT>>": 5, "<<SEP>>": 6}
	look := func(token string) (int32, bool) { id, ok := ids[token]; return id, ok }
	for _, x := range []struct {
		g     *GLiNER
		field string // of the error; "": none
	}{
		{nil, ""},
		{&GLiNER{EntToken: "<<ENT>>", SepToken: "<<SEP>>", ClassToken: -1}, ""},
		{&GLiNER{EntToken: "<<ENT>>", SepToken: "<<SEP>>", ClassToken: 5}, ""},
		{&GLiNER{EntToken: "<<ENT>>", SepToken: "<<SEP>>", ClassToken: 6}, "class_token_index"},
		{&GLiNER{EntToken: "[ENT]", SepToken: "<<SEP>>", ClassToken: -1}, "ent_token"},
		{&GLiNER{EntToken: "<<ENT>>", SepToken: "[SEP]", ClassToken: -1}, "sep_token"},
	} {
		var bad *ModelError
		err := x.g.CheckTokens(look)
		if errors.As(err, &bad) != (x.field != "") || bad != nil && bad.Field != x.field {
			t.Errorf("%+v: %v, want an error about %q", x.g, err, x.field)
		}
	}
}

// FuzzGLiNERConfig looks at a tiny model with any gliner_config.json. What is refused has an error,
// and what is not can be sized.
func FuzzGLiNERConfig(f *testing.F) {
	c := golden.Open(f, "gliner-bert-span")
	dir := changedGLiNER(f, c, nil)
	whole, err := os.ReadFile(filepath.Join(dir, glinerFile))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(whole), `{}`, `[]`, `{"max_width": 1e6}`, `{"encoder_config": {}}`,
		`{"encoder_config": null, "model_name": "microsoft/deberta-v3-small"}`, `{"hidden_size": 1e400}`,
		`{"class_token_index": -1, "vocab_size": -1, "encoder_config": {"model_type": "modernbert"}}`} {
		f.Add([]byte(s))
	}
	dev := open(f, engine.Options{Kind: engine.Ref, Threads: 1})
	f.Fuzz(func(t *testing.T, config []byte) {
		if err := os.WriteFile(filepath.Join(dir, glinerFile), config, 0o600); err != nil {
			t.Fatal(err)
		}
		if added, err := Spans.AddedTokens(dir); err == nil && len(added) > 4 {
			t.Fatalf("%d tokens are added", len(added))
		}
		r, err := Check(dir, dev, Options{Task: Spans})
		if err == nil && (r == nil || len(r.Problems) == 0 && r.Size.Packed <= 0) {
			t.Fatalf("%+v", r)
		}
	})
}

// Looking at a model multiplies nothing: the widest configuration costs no more than its sizes.
func TestGLiNERIsSizedAtOnce(t *testing.T) {
	dev := open(t, engine.Options{Kind: engine.Ref})
	dir := changedGLiNER(t, golden.Open(t, "gliner-bert-token"), map[string]any{"hidden_size": 4096})
	from := time.Now()
	r, err := Check(dir, dev, Options{Task: Spans})
	if err != nil || len(r.Problems) == 0 {
		t.Fatal(err, r)
	}
	if took := time.Since(from); took > time.Minute { // products of 3·10¹¹ steps take much longer
		t.Errorf("%v", took)
	}
}
