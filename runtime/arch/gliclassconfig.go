package arch

import (
	"cmp"
	"encoding/json"
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// gliclassConfig holds the keys of a GLiClass model's config.json that the computation depends on.
type gliclassConfig struct {
	Architecture string          `json:"architecture_type"`
	Encoder      json.RawMessage `json:"encoder_config"`

	ClassToken   int32 `json:"class_token_index"`
	TextToken    int32 `json:"text_token_index"`
	ExampleToken int32 `json:"example_token_index"`
	PromptFirst  bool  `json:"prompt_first"`

	Hidden       int64  `json:"hidden_size"` // inside a projector
	Vocab        int64  `json:"vocab_size"`
	ProjectorAct string `json:"projector_hidden_act"`

	Pooling      string `json:"pooling_strategy"`
	ClassPooling string `json:"class_token_pooling"`
	EmbedClass   bool   `json:"embed_class_token"`
	ExtractText  bool   `json:"extract_text_features"`
	Normalize    bool   `json:"normalize_features"`
	LSTM         bool   `json:"use_lstm"`
	Squeeze      bool   `json:"squeeze_layers"`
	LayerID      int    `json:"encoder_layer_id"` // −1: the last
	Segments     bool   `json:"use_segment_embeddings"`

	Scorer      string `json:"scorer_type"`
	ScorerHeads int64  `json:"scorer_num_heads"`
	ScorerMLP   int64  `json:"scorer_mlp_hidden_size"` // of cross-attn; that of mlp is 256

	LabelsAlloc any  `json:"max_labels_alloc"`
	Calibrator  bool `json:"use_calibrator"`

	inner []byte // the encoder's config.json
	// of the encoder
	columns, layers int64
}

// gliclassPoolers maps pooling_strategy to the pooling that computes it.
var gliclassPoolers = map[string]engine.Pooling{
	"first": engine.PoolCLS, "last": engine.PoolLast, "avg": engine.PoolMean, "max": engine.PoolMax,
	"sum": engine.PoolSum, "rms": engine.PoolRMS, "abs_max": engine.PoolAbsMax,
	"abs_avg": engine.PoolAbsMean,
}

// gliclassScorers are the scorers that are computed.
var gliclassScorers = map[string]func(*gliclassHead, *packer){
	"simple":       func(*gliclassHead, *packer) {},
	"weighted-dot": (*gliclassHead).loadWeightedDot,
	"mlp":          (*gliclassHead).loadMLP,
	"hopfield":     (*gliclassHead).loadHopfield,
	"cross-attn":   (*gliclassHead).loadCrossAttention,
}

// passPooler is the pooler that leaves the rows of a text as they are.
const passPooler = "pass"

// readGLiClassConfig reads and checks config.json. An absent key has the package's default.
func readGLiClassConfig(dir fs.FS) (gliclassConfig, error) {
	c := gliclassConfig{Architecture: "uni-encoder", ClassToken: -1, TextToken: -1, ExampleToken: -1,
		ProjectorAct: "gelu", Pooling: "first", ClassPooling: "first", EmbedClass: true, LayerID: -1,
		Scorer: "simple", ScorerHeads: 16, ScorerMLP: 1024, LabelsAlloc: "dynamic"}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if c.Architecture != "uni-encoder" {
		return c, refuse(configFile, "architecture_type",
			"is %.60q; of the architectures of the gliclass package uni-encoder is supported", c.Architecture)
	}
	if c.Encoder == nil || string(c.Encoder) == "null" {
		return c, refuse(configFile, "encoder_config", "is missing; it has the encoder's configuration")
	}
	changes := map[string]any{}
	if c.Vocab != 0 {
		changes["vocab_size"] = c.Vocab // the package resizes the encoder's table to it
	}
	var err error
	if c.inner, err = innerConfig(configFile, "encoder_config", c.Encoder, changes); err != nil {
		return c, err
	}
	var inner struct {
		Hidden   int64 `json:"hidden_size"`
		Layers   int64 `json:"num_hidden_layers"`
		T5Hidden int64 `json:"d_model"`
		T5Layers int64 `json:"num_layers"`
		Vocab    int64 `json:"vocab_size"`
	}
	if err := json.Unmarshal(c.inner, &inner); err != nil {
		return c, refuse(configFile, "encoder_config", "has a size that is no number: %v", err)
	}
	c.columns, c.layers = cmp.Or(inner.T5Hidden, inner.Hidden), cmp.Or(inner.T5Layers, inner.Layers)
	c.Vocab = inner.Vocab
	if c.Hidden == 0 {
		c.Hidden = c.columns
	}
	c.Squeeze = c.Squeeze && c.LayerID == -1 // else the package reads that block alone
	for i, token := range []*int32{&c.ClassToken, &c.TextToken, &c.ExampleToken} {
		if *token == -1 { // behind the vocabulary, as the package counts them
			*token = int32(c.Vocab) + int32(i)
		}
	}
	return c, c.check()
}

// textRows reports whether the text's rows are listed: where they are not all, or pass layers of
// their own, which are computed in float32.
func (c *gliclassConfig) textRows() bool {
	return c.ExtractText || c.LSTM || c.Pooling == passPooler || c.Squeeze && !c.squeezedPooled()
}

// squeezedPooled reports whether the rows of all blocks can be pooled before they are weighed and
// projected: a row, or a mean of projections, is the projection of one.
func (c *gliclassConfig) squeezedPooled() bool {
	linear := c.Pooling == "first" || c.Pooling == "last" || c.Pooling == "avg"
	return linear && !c.LSTM && !c.filled()
}

// filled reports whether rows of zeros follow the text's: the package moves the text to the front
// of a sequence's rows and pools them all. It leaves the rest to no LSTM and to no attention.
func (c *gliclassConfig) filled() bool {
	return c.ExtractText && !c.LSTM && c.Pooling != passPooler
}

// check refuses values that the package refuses or that are not computed here.
func (c *gliclassConfig) check() error {
	for _, size := range []struct {
		key   string
		value int64
	}{{"hidden_size", c.Hidden}, {"scorer_num_heads", c.ScorerHeads}, {"scorer_mlp_hidden_size",
		c.ScorerMLP}} {
		if size.value < 1 || size.value > 1<<16 {
			return refuse(configFile, size.key, "is %d; 1 to %d are possible", size.value, 1<<16)
		}
	}
	for _, token := range []struct {
		key string
		id  int32
	}{{"class_token_index", c.ClassToken}, {"text_token_index", c.TextToken}} {
		if token.id < 0 || int64(token.id) >= c.Vocab {
			return refuse(configFile, token.key, "is %d; the vocabulary has the ids 0 to %d", token.id,
				c.Vocab-1)
		}
	}
	if err := checkNamed("projector_hidden_act", c.ProjectorAct, activations); err != nil {
		return err
	}
	if c.ClassPooling != "first" && c.ClassPooling != "average" {
		// the package reads any other name as first
		return refuse(configFile, "class_token_pooling", "is %.60q; first and average are possible",
			c.ClassPooling)
	}
	if err := checkNamed("scorer_type", c.Scorer, gliclassScorers); err != nil {
		return err
	}
	if c.LabelsAlloc != "dynamic" {
		return refuse(configFile, "max_labels_alloc",
			"is %.60v; only dynamic is supported, where every text has as many places as labels", c.LabelsAlloc)
	}
	if c.Calibrator {
		return refuse(configFile, "use_calibrator", "is true; calibrated models are not supported")
	}
	if c.LayerID < -1 || int64(c.LayerID) > c.layers {
		return refuse(configFile, "encoder_layer_id", "is %d; -1 to %d are possible", c.LayerID, c.layers)
	}
	return c.checkText()
}

// checkText refuses combinations of the text's pooling with the rest that are not computed here.
func (c *gliclassConfig) checkText() error {
	if (c.Scorer == "cross-attn") != (c.Pooling == passPooler) {
		return refuse(configFile, "pooling_strategy",
			"is %.60q with the scorer %s: pass goes with cross-attn",
			c.Pooling, c.Scorer)
	}
	if c.Pooling != passPooler {
		if err := checkNamed("pooling_strategy", c.Pooling, gliclassPoolers); err != nil {
			return err
		}
	}
	if c.Hidden != c.columns && (c.Scorer != "simple" || c.LSTM) {
		return refuse(configFile, "hidden_size",
			"is %d and the encoder's %d; the scorer %s and an LSTM need one",
			c.Hidden, c.columns, c.Scorer)
	}
	if c.Scorer == "cross-attn" && c.columns%c.ScorerHeads != 0 {
		return refuse(configFile, "scorer_num_heads", "is %d, which does not divide the hidden size %d",
			c.ScorerHeads, c.columns)
	}
	if c.LSTM && c.columns%2 != 0 {
		return refuse(configFile, "use_lstm", "is true; the hidden size %d has no half", c.columns)
	}
	return nil
}

// checkCard refuses what GPUs have no kernel for: the softmax of hopfield, the attention of
// cross-attn in float32, and sums and sizes of rows.
func (c *gliclassConfig) checkCard(dev *engine.Device) error {
	info, err := dev.Info()
	switch {
	case err != nil || info.Kind != engine.CUDA:
		return err
	case c.Scorer == "hopfield":
		return refuse(configFile, "scorer_type",
			"is hopfield, whose softmax GPUs have no kernel for; serve it with --device cpu")
	case c.Scorer == "cross-attn":
		return refuse(configFile, "scorer_type",
			"is cross-attn, whose attention in float32 GPUs have no kernel for; serve it with --device cpu")
	case gliclassPoolers[c.Pooling] >= engine.PoolSum:
		return refuse(configFile, "pooling_strategy",
			"is %s, which GPUs have no kernel for; serve it with --device cpu", c.Pooling)
	}
	return nil
}
