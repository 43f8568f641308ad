package arch

import (
	"fmt"
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// ALBERT (Lan 2019, arXiv:1909.11942) runs the same few blocks many times. Its layers are divided
// into groups, in order and as evenly as possible, and each layer runs the blocks of its group.
// Every block is packed once. Embeddings are narrow, and a linear always brings them to the blocks'
// width. The rest is BERT.
type albert struct {
	*bert       // its blocks are those of the first group, then those of the next
	steps []int // the blocks that a pass runs, in order
	names []string
}

// albertNames holds its names and defaults in the form of BERT's family.
var albertNames = &bertFamily{
	prefixes: []string{"", "albert.", "model.", "0.auto_model."},
	block:    "encoder.albert_layer_groups.%d.albert_layers.%d.",
	names: bertTensors{
		query:         "attention.query",
		key:           "attention.key",
		value:         "attention.value",
		out:           "attention.dense",
		attentionNorm: "attention.LayerNorm",
		up:            "ffn",
		down:          "ffn_output",
		blockNorm:     "full_layer_layer_norm",
	},
	project:       "encoder.embedding_hidden_mapping_in",
	projectAlways: true,
	heads: headNames{
		pooler: transformNames{dense: "pooler", inEncoder: true, act: engine.Tanh},
		logits: "classifier",
		tag:    "classifier",
		masked: maskedNames{
			transform: transformNames{dense: "predictions.dense", norm: "predictions.LayerNorm"},
			decoder:   "predictions.decoder",
			biases:    []string{"predictions.decoder.bias", "predictions.bias"},
		},
	},
	defaults: bertConfig{
		EmbeddingSize:         128,
		HiddenAct:             "gelu_new",
		LayerNormEps:          1e-12,
		TypeVocabSize:         2,
		PositionEmbeddingType: "absolute",
	},
}

// albertGroups holds the keys of config.json that say which blocks a pass runs.
type albertGroups struct {
	Groups int64 `json:"num_hidden_groups"`
	Inner  int64 `json:"inner_group_num"` // blocks of a group
}

// maxSteps bounds the blocks that a pass runs.
const maxSteps = 256

func readAlbertGroups(dir fs.FS, layers int64) (albertGroups, error) {
	g := albertGroups{1, 1}
	if err := needJSON(dir, configFile, &g); err != nil {
		return g, err
	}
	if g.Groups < 1 || g.Groups > layers {
		return g, refuse(configFile, "num_hidden_groups", "is %d; 1 to %d, the number of layers, is possible",
			g.Groups, layers)
	}
	if g.Inner < 1 || g.Inner > maxSteps/layers {
		return g, refuse(configFile, "inner_group_num", "is %d; 1 to %d is possible with %d layers",
			g.Inner, maxSteps/layers, layers)
	}
	return g, nil
}

// steps returns the blocks that the layers run, in order.
func (g albertGroups) steps(layers int64) []int {
	var out []int
	for layer := range layers {
		// rounded as transformers rounds it
		group := int64(float64(layer) / (float64(layers) / float64(g.Groups)))
		for inner := range g.Inner {
			out = append(out, int(group*g.Inner+inner))
		}
	}
	return out
}

// loadAlbert packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadAlbert(dir fs.FS, p *packer) (encoder, error) {
	config, err := readBertConfig(dir, albertNames)
	if err != nil {
		return nil, err
	}
	groups, err := readAlbertGroups(dir, config.Layers)
	if err != nil {
		return nil, err
	}
	if err := p.checkHeadDim(config.headDim(), "num_attention_heads"); err != nil {
		return nil, err
	}
	a := &albert{bert: &bert{family: albertNames, config: config}}
	p.findPrefix(wordTable, albertNames.prefixes)
	a.loadEmbeddings(p)
	for group := range groups.Groups {
		for inner := range groups.Inner {
			at := fmt.Sprintf(albertNames.block, group, inner)
			a.blocks = append(a.blocks,
				loadBlock(p, albertNames.names, at, config.HiddenSize, config.IntermediateSize))
			a.names = append(a.names, at)
			if p.err != nil {
				return nil, p.err
			}
		}
	}
	a.steps = groups.steps(config.Layers)
	return a, nil
}

func (a *albert) forward(r *engine.Recorder, p pass) engine.Value {
	x := a.embed(r, p)
	p.see(0, x)
	for i, block := range a.steps {
		x = a.block(r, p, x, a.blocks[block], i == len(a.steps)-1)
		p.see(i+1, x)
	}
	return x
}

func (a *albert) linears() []linear {
	all := a.projection()
	for i, l := range a.blocks {
		all = append(all,
			l.linears(albertNames.names, a.names[i], a.config.HiddenSize, a.config.IntermediateSize)...)
	}
	return all
}

func (a *albert) shape() encoderShape {
	run := a.config
	run.Layers = int64(len(a.steps))
	s := a.bert.shape()
	s.blocks, s.cost = len(a.steps), Cost{PerToken: run.perToken(), PerPair: run.perPair()}
	return s
}
