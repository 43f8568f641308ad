package arch

import (
	"io/fs"
	"path"

	"github.com/sie-engine/sie/runtime/engine"
)

// maskedNames are the names of a masked-language-model head: a layer to the width of the table of
// words with an activation and a LayerNorm, then one logit for each entry of the vocabulary, whose
// matrix may be that table.
type maskedNames struct {
	transform, norm string
	act             engine.Act
	eps             float64
	decoder         string
	biases          []string // where a checkpoint may keep the decoder's bias; the first there is computed with
}

// maskedHead is that head, packed. The logits of a SPLADE model are computed, and the largest of a
// sequence taken, by one operation (Formal 2021, arXiv:2109.10086), so the decoder is kept apart.
type maskedHead struct {
	transform     layer
	gamma, beta   *engine.Weight
	eps           float32
	decoder, bias *engine.Weight // [vocab, E], [vocab]
}

// beforeDecoder gives y[T, E], of which the logits are y·decoderᵀ + bias.
func (h *maskedHead) beforeDecoder(r *engine.Recorder, p pass, x engine.Value) engine.Value {
	return r.LayerNorm(p.layer(r, x, h.transform), h.gamma, h.beta, h.eps)
}

// loadMasked packs the head. A checkpoint without a decoder's matrix shares the table of words, as
// transformers ties them.
func loadMasked(dir fs.FS, n maskedNames, shape encoderShape, p *packer) (*maskedHead, error) {
	tied := struct {
		Tie bool `json:"tie_word_embeddings"`
	}{true}
	if err := needJSON(dir, configFile, &tied); err != nil {
		return nil, err
	}
	q := p.head("", p.compute)
	h := &maskedHead{transform: q.layer(shape.words, shape.columns, n.transform, n.act), eps: float32(n.eps)}
	h.gamma, h.beta = q.norm(shape.words, n.norm)
	matrix := n.decoder + ".weight"
	if _, own := p.from.Tensor(matrix); !own && tied.Tie {
		matrix = p.prefix + wordTable
	}
	h.decoder = q.linear(shape.vocab, shape.words, matrix)
	h.bias = q.vector(shape.vocab, q.first(n.biases...))
	p.join(q)
	return h, p.err
}

// readSpladePooling reads the configuration of the SpladePooling module in folder: log(1 + x) of
// the largest logits unless it says otherwise, or there is none.
func readSpladePooling(dir fs.FS, folder string) (engine.Sparse, error) {
	if folder == "" {
		return engine.SparseLog, nil
	}
	c := struct {
		Strategy   string `json:"pooling_strategy"`
		Activation string `json:"activation_function"`
	}{"max", "relu"}
	name := path.Join(folder, configFile)
	if _, err := optional(readJSON(dir, name, &c)); err != nil {
		return 0, err
	}
	if c.Strategy != "max" {
		return 0, refuse(name, "pooling_strategy", "is %.40q; only max is supported", c.Strategy)
	}
	switch c.Activation {
	case "relu":
		return engine.SparseLog, nil
	case "log1p_relu":
		return engine.SparseLogLog, nil
	}
	return 0, refuse(name, "activation_function", "is %.40q; relu and log1p_relu are supported", c.Activation)
}
