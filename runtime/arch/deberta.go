package arch

import (
	"fmt"
	"io/fs"
	"strings"
)

// DeBERTa v2 and v3 (He 2020, arXiv:2006.03654; He 2021, arXiv:2111.09543) are BERT without
// positions in the input. Attention adds two terms to a score by the distance between query and
// key: the query's product with a row for that distance, and the key's product with another
// (disentangled attention). Far distances share rows. The rows of a block are a table of all blocks
// behind the block's own projections, so they depend on weights alone and are made once, at load
// (debertatables.go). It is the encoder of deberta-v3 and mDeBERTa, of most zero-shot classifiers
// and of mxbai-rerank v1.

// debertaLongest bounds a text, because no table of positions does.
const debertaLongest = 8192

// debertaNames holds the names of the published tensors, which are transformers'. loadDeberta adds
// what the configuration decides.
var debertaNames = bertFamily{
	prefixes: []string{"", "deberta.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names: bertTensors{
		query:         "attention.self.query_proj",
		key:           "attention.self.key_proj",
		value:         "attention.self.value_proj",
		out:           "attention.output.dense",
		attentionNorm: "attention.output.LayerNorm",
		up:            "intermediate.dense",
		down:          "output.dense",
		blockNorm:     "output.LayerNorm",
	},
	positions: "disentangled",
	heads:     headNames{logits: "classifier", tag: "classifier"},
}

// The heads over the vocabulary: of DeBERTa v2, and of files with `legacy` false, whose decoder is
// always the table of words.
var (
	debertaLegacyMasked = bertNames.heads.masked
	debertaMasked       = maskedNames{
		transform: transformNames{
			dense: "lm_predictions.lm_head.dense", norm: "lm_predictions.lm_head.LayerNorm",
		},
		decoder: "lm_predictions.lm_head.decoder",
		biases:  []string{"lm_predictions.lm_head.bias"},
	}
)

// debertaConfig holds the keys of config.json that the computation depends on.
type debertaConfig struct {
	bertConfig `json:"-"`

	Relative      bool   `json:"relative_attention"`
	Absolute      bool   `json:"position_biased_input"`
	Terms         any    `json:"pos_att_type"`           // a list, or a text with | between names
	Shared        bool   `json:"share_att_key"`          // the tables take the block's own projections
	Reach         int64  `json:"max_relative_positions"` // below 1: max_position_embeddings
	Buckets       int64  `json:"position_buckets"`       // below 1: each distance has a row
	TableNorm     string `json:"norm_rel_ebd"`
	HeadDim       *int64 `json:"attention_head_size"`
	Convolution   int64  `json:"conv_kernel_size"`
	PoolerAct     string `json:"pooler_hidden_act"`
	PoolerColumns *int64 `json:"pooler_hidden_size"`
	Legacy        bool   `json:"legacy"`

	byKey   bool // a term multiplies the query with a row ("content to position", c2p)
	byQuery bool // a term multiplies the key with a row (p2c)
	normed  bool // a LayerNorm stands behind the table of distances
}

// readDeberta reads and checks config.json. Absent keys have transformers' values.
func readDeberta(dir fs.FS) (*debertaConfig, error) {
	c := &debertaConfig{
		bertConfig: bertConfig{HiddenAct: "gelu", LayerNormEps: 1e-7, MaxPositionEmbeddings: 512,
			PositionEmbeddingType: debertaNames.positions},
		Absolute: true, Reach: -1, Buckets: -1, TableNorm: "none", PoolerAct: "gelu", Legacy: true,
	}
	for _, part := range []any{&c.bertConfig, c} {
		if err := needJSON(dir, configFile, part); err != nil {
			return nil, err
		}
	}
	if n := c.EmbeddingSize; n != 0 && n != c.HiddenSize {
		return nil, refuse(configFile, "embedding_size",
			"is %d; only embeddings as wide as hidden_size, %d, are supported", n, c.HiddenSize)
	}
	c.EmbeddingSize = c.HiddenSize
	c.PositionEmbeddingType = debertaNames.positions // transformers does not read the key
	if err := c.bertConfig.check(&debertaNames); err != nil {
		return nil, err
	}
	if c.Reach < 1 {
		c.Reach = c.MaxPositionEmbeddings
	}
	return c, c.checkPositions()
}

// checkPositions refuses what is no relative attention, and tables of distances that no model has.
func (c *debertaConfig) checkPositions() error {
	switch {
	case !c.Relative:
		return refuse(configFile, "relative_attention",
			"is false or missing; attention without distances is not supported, true is possible")
	case c.Absolute:
		return refuse(configFile, "position_biased_input",
			"is true or missing; a table of absolute positions is not supported, false is possible")
	case c.Convolution > 0:
		return refuse(configFile, "conv_kernel_size",
			"is %d; the convolution of DeBERTa v2 xlarge is not supported, 0 is possible", c.Convolution)
	case c.HeadDim != nil && *c.HeadDim != c.headDim():
		return refuse(configFile, "attention_head_size",
			"is %d; num_attention_heads %d of hidden_size %d make %d, and the model's code needs that",
			*c.HeadDim, c.Heads, c.HiddenSize, c.headDim())
	case c.PoolerColumns != nil && *c.PoolerColumns != c.HiddenSize:
		return refuse(configFile, "pooler_hidden_size", "is %d; only hidden_size, %d, is possible",
			*c.PoolerColumns, c.HiddenSize)
	}
	if err := c.readTerms(); err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.ToLower(c.TableNorm), "|") {
		switch strings.TrimSpace(name) {
		case "layer_norm":
			c.normed = true
		case "none":
		default:
			return refuse(configFile, "norm_rel_ebd", "is %.60q; layer_norm and none are possible",
				c.TableNorm)
		}
	}
	if err := checkNamed("pooler_hidden_act", c.PoolerAct, activations); err != nil {
		return err
	}
	return c.checkBuckets()
}

// checkBuckets refuses sizes of the tables of distances for which transformers' buckets are not
// defined, or do not ascend.
func (c *debertaConfig) checkBuckets() error {
	if c.Buckets < 1 {
		return checkSizes(sized{"max_relative_positions", c.Reach, 1, maxDistanceRows / 2})
	}
	if err := checkSizes(sized{"position_buckets", c.Buckets, 4, maxDistanceRows / 2}); err != nil {
		return err
	}
	if least := c.Buckets/2 + 2; c.Reach < least || c.Reach > maxReach {
		return refuse(configFile, "max_relative_positions",
			"is %d; with %d position_buckets %d to %d is possible", c.Reach, c.Buckets, least, maxReach)
	}
	return nil
}

// readTerms reads pos_att_type. transformers lowers and trims the names of a text only.
func (c *debertaConfig) readTerms() error {
	var names []any
	switch terms := c.Terms.(type) {
	case string:
		for name := range strings.SplitSeq(strings.ToLower(terms), "|") {
			names = append(names, strings.TrimSpace(name))
		}
	case []any:
		names = terms
	}
	for _, name := range names {
		switch name {
		case "c2p":
			c.byKey = true
		case "p2c":
			c.byQuery = true
		default:
			return refuse(configFile, "pos_att_type", "has %.40v; c2p and p2c are possible", name)
		}
	}
	if !c.byKey && !c.byQuery {
		return refuse(configFile, "pos_att_type",
			"is %.60v or missing; c2p, p2c and both are possible", c.Terms)
	}
	return nil
}

// deberta is a BERT whose blocks have tables of distances.
type deberta struct {
	*bert
	of *debertaConfig
}

// loadDeberta packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadDeberta(dir fs.FS, p *packer) (encoder, error) {
	c, err := readDeberta(dir)
	if err != nil {
		return nil, err
	}
	if err := p.checkDistances(c.headDim(), "num_attention_heads"); err != nil {
		return nil, err
	}
	family := debertaNames
	family.convert = func(fs.FS) (bertConfig, error) { return c.bertConfig, nil }
	family.heads.pooler = transformNames{dense: "pooler.dense", act: activations[c.PoolerAct]}
	family.heads.masked = debertaMasked
	if c.Legacy {
		family.heads.masked = debertaLegacyMasked
	}
	e, err := family.load(dir, p)
	if err != nil {
		return nil, err
	}
	d := &deberta{bert: e.(*bert), of: c}
	d.packDistances(p)
	return d, p.err
}

func (d *deberta) shape() encoderShape {
	s := d.bert.shape()
	s.usual, s.positions, s.biased = s.positions, debertaLongest, true
	s.cost.PerPair *= 1 + float64(d.terms)/2
	return s
}

// fixed returns the linears that the tables of distances were made with, and why adapters cannot
// change them.
func (d *deberta) fixed() map[string]string {
	const why = "the table of distances (%s) is made with it when the model is loaded, and all adapters share it; train one for the other linears"
	names := map[string]string{}
	for _, m := range d.of.distanceTables() {
		names[m.projection] = fmt.Sprintf(why, m.term)
	}
	return names
}
