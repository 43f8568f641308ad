package arch

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
)

// glinerFile is the configuration that the package gliner saves. Models of its first releases have
// the keys of their training beside the model's; those of the encoder are then the backbone's own.
const glinerFile = "gliner_config.json"

// glinerConfig holds the keys that the computation depends on.
type glinerConfig struct {
	ModelType  string          `json:"model_type"`
	Backbone   string          `json:"model_name"`
	Encoder    json.RawMessage `json:"encoder_config"` // null: the backbone's
	VocabSize  int64           `json:"vocab_size"`     // -1: as many as the tokenizer has
	Hidden     int64           `json:"hidden_size"`    // D, of words and labels behind the encoder
	MaxWidth   int64           `json:"max_width"`      // words of the widest span
	MaxLen     int64           `json:"max_len"`        // words of a text
	SpanMode   string          `json:"span_mode"`
	Subtokens  string          `json:"subtoken_pooling"`
	RNNLayers  int64           `json:"num_rnn_layers"`
	EmbedEnt   bool            `json:"embed_ent_token"`
	FuseLayers bool            `json:"fuse_layers"`       // the states of all blocks are read
	ClassToken int64           `json:"class_token_index"` // -1: the tokenizer's
	Splitter   string          `json:"words_splitter_type"`
	EntToken   string          `json:"ent_token"`
	SepToken   string          `json:"sep_token"`

	// CrossFuser layers: a uni-encoder makes them and its forward pass never runs them. A
	// bi-encoder runs them, over words and labels together.
	PostFusion string `json:"post_fusion_schema"`

	glinerTower
	glinerRelexConfig
	glinerRefused
}

// glinerRefused are keys of models that are not served yet.
type glinerRefused struct {
	SpanEncoder    json.RawMessage `json:"span_encoder_config"`
	RepresentSpans bool            `json:"represent_spans"`
	Precomputed    *bool           `json:"precomputed_prompts_mode"`
	LabelsDecoder  *string         `json:"labels_decoder"`
}

// tokenLevel is the span_mode of models that score tokens and not spans.
const tokenLevel = "token_level"

// glinerSubtokens maps subtoken_pooling to the tokens of a word that are read.
var glinerSubtokens = map[string]engine.Pooling{
	"first": engine.PoolCLS, "last": engine.PoolLast, "mean": engine.PoolMean,
}

// glinerBackbones holds what their own config.json says of the backbones that models name without
// an encoder_config: the sizes in which they differ.
var glinerBackbones = map[string]debertaSizes{
	"microsoft/deberta-v3-small":  {768, 6, 12, 3072},
	"microsoft/deberta-v3-base":   {768, 12, 12, 3072},
	"microsoft/deberta-v3-large":  {1024, 24, 16, 4096},
	"microsoft/mdeberta-v3-base":  {768, 12, 12, 3072},
	"microsoft/deberta-v3-xsmall": {384, 12, 6, 1536},
}

// debertaSizes are the columns, blocks, heads and columns inside an MLP of a DeBERTa v3.
type debertaSizes struct{ hidden, layers, heads, inner int64 }

// config returns what config.json of the backbone says, without the vocabulary.
func (s debertaSizes) config() map[string]any {
	return map[string]any{
		"model_type": debertaType, "hidden_size": s.hidden, "num_hidden_layers": s.layers,
		"num_attention_heads": s.heads, "intermediate_size": s.inner, "hidden_act": "gelu",
		"max_position_embeddings": 512, "relative_attention": true, "position_buckets": 256,
		"norm_rel_ebd": "layer_norm", "share_att_key": true, "pos_att_type": "p2c|c2p",
		"layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": false,
		"type_vocab_size": 0, "pad_token_id": 0,
	}
}

// readGLiNERConfig reads and checks gliner_config.json. An absent key has the package's default.
func readGLiNERConfig(dir fs.FS) (c glinerConfig, err error) {
	c = glinerConfig{Backbone: "microsoft/deberta-v3-small", VocabSize: -1, Hidden: 512, MaxWidth: 12,
		MaxLen: 384, SpanMode: "markerV0", Subtokens: "first", RNNLayers: 1, EmbedEnt: true, ClassToken: -1,
		Splitter: "whitespace", EntToken: "<<ENT>>", SepToken: "<<SEP>>",
		glinerRelexConfig: glinerRelexConfig{EmbedRel: true, RelClass: -1, RelToken: "<<REL>>"}}
	if err := needJSON(dir, glinerFile, &c); err != nil {
		return c, err
	}
	if err := c.checkKind(); err != nil {
		return c, err
	}
	if c.isBi() {
		c.RNNLayers = 0 // a bi-encoder makes them and its forward pass never runs them
	}
	return c, cmp.Or(c.check(), c.checkRelex())
}

// checkKind refuses the architectures of the package that are not served.
func (c *glinerConfig) checkKind() error {
	const not = "models with it are not served yet"
	has := func(s *string) bool { return s != nil && *s != "" }
	isSet := func(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }
	for _, k := range []struct {
		key, value string
		there      bool
	}{
		{"model_type", c.ModelType, strings.Contains(c.ModelType, "streaming")},
		{"post_fusion_schema", c.PostFusion, c.isBi() && c.PostFusion != ""},
		{"fuse_layers", "true beside a labels_encoder", c.isBi() && c.FuseLayers},
		{"span_mode", "marker beside a labels_encoder", c.isBi() && c.SpanMode == spanMarker},
		{"labels_decoder", "set", has(c.LabelsDecoder)},
		{"span_encoder_config", "set", isSet(c.SpanEncoder)},
		{"represent_spans", "true", c.RepresentSpans && c.SpanMode == tokenLevel && c.Relations == nil},
		{"precomputed_prompts_mode", "true", c.Precomputed != nil && *c.Precomputed},
	} {
		if k.there {
			return refuse(glinerFile, k.key, "is %.60s; "+not, k.value)
		}
	}
	return nil
}

func (c *glinerConfig) check() error {
	for _, s := range []sized{
		{"hidden_size", c.Hidden, 2, 4096},
		{"max_width", c.MaxWidth, 1, engine.MaxSpanWidth},
		{"max_len", c.MaxLen, 1, 1 << 16},
		{"num_rnn_layers", c.RNNLayers, 0, 8},
		{"class_token_index", c.ClassToken, -1, 1 << 22},
		{"vocab_size", c.VocabSize, -1, 1 << 22},
	} {
		if s.value < s.from || s.value > s.to {
			return refuse(glinerFile, s.key, "is %d; %d to %d is possible", s.value, s.from, s.to)
		}
	}
	if c.RNNLayers > 0 && c.Hidden%2 != 0 {
		return refuse(glinerFile, "hidden_size", "is %d; an LSTM of two directions needs an even number",
			c.Hidden)
	}
	if c.SpanMode != "markerV0" && c.SpanMode != spanMarker && c.SpanMode != tokenLevel {
		return refuse(glinerFile, "span_mode", "is %.60q; supported are markerV0, %s and %s", c.SpanMode,
			spanMarker, tokenLevel)
	}
	if _, ok := glinerSubtokens[c.Subtokens]; !ok {
		return refuse(glinerFile, "subtoken_pooling", "is %.60q; supported are %s", c.Subtokens,
			listed(glinerSubtokens))
	}
	if c.Splitter != "whitespace" {
		return refuse(glinerFile, "words_splitter_type",
			"is %.60q; the splitter whitespace is supported, others need libraries of their languages", c.Splitter)
	}
	for _, t := range []struct{ key, value string }{{"ent_token", c.EntToken}, {"sep_token", c.SepToken}} {
		if t.value == "" || len(t.value) > 64 {
			return refuse(glinerFile, t.key, "has %d bytes; 1 to 64 are possible", len(t.value))
		}
	}
	return nil
}

// nested returns the encoder's configuration.
func (c *glinerConfig) nested() (nested, error) {
	n := nested{resized: c.resized(), file: glinerFile, key: "encoder_config",
		prefix: "token_rep_layer.bert_layer.model."}
	var config map[string]any
	if c.Encoder != nil && string(c.Encoder) != "null" {
		if json.Unmarshal(c.Encoder, &config) != nil || config == nil {
			return n, refuse(glinerFile, n.key, "is no object")
		}
		if config["model_type"] == nil {
			config["model_type"] = debertaType
		}
	} else {
		sizes, ok := glinerBackbones[c.Backbone]
		if !ok {
			return n, refuse(glinerFile, "model_name",
				"is %.100q and there is no encoder_config; without one these backbones are known: %s",
				c.Backbone, strings.Join(slices.Sorted(maps.Keys(glinerBackbones)), ", "))
		}
		config = sizes.config()
		if c.VocabSize != -1 { // else as many rows as the checkpoint has
			config["vocab_size"] = c.VocabSize
		}
	}
	if t, _ := config["model_type"].(string); architectures[t] == nil {
		return n, refuse(glinerFile, n.key+".model_type", "is %.60q; supported are %s",
			cmp.Or(t, "no string"), strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
	}
	var err error
	n.config, err = json.Marshal(config)
	return n, err
}

// resized reports whether the package gives the table as many rows as the tokenizer has ids,
// whatever the configuration says.
func (c *glinerConfig) resized() bool {
	return c.ClassToken == -1 || c.VocabSize == -1
}

// Backbone returns the repository of the encoder that a GLiNER model was made from, as the files in
// dir name it; "" if they name none.
func Backbone(dir string) string {
	var c struct {
		Name string `json:"model_name"`
	}
	if readJSON(files.Dir(dir), glinerFile, &c) != nil {
		return ""
	}
	return c.Name
}
