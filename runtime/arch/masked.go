package arch

import (
	"io/fs"
	"path"

	"github.com/sie-engine/sie/runtime/engine"
)

// maskedNames holds the names of a masked-language-model head. The head is a layer to the width of
// the table of words with an activation and a LayerNorm, then one logit for each entry of the
// vocabulary. The logits' matrix may be the table of words.
type maskedNames struct {
	transform, norm string
	act             engine.Act
	eps             float64
	decoder         string
	biases          []string // where a checkpoint may keep the decoder's bias; the first that exists is used
}

// maskedHead is the packed head. One operation computes the logits of a SPLADE model and takes the
// largest of a sequence (Formal 2021, arXiv:2109.10086), so the decoder is separate.
type maskedHead struct {
	transform     layer
	gamma, beta   *engine.Weight
	eps           float32
	decoder, bias *engine.Weight // [vocab, E], [vocab]
}

// beforeDecoder records y[T, E]; the logits are y·decoderᵀ + bias.
func (h *maskedHead) beforeDecoder(r *engine.Recorder, p pass, x engine.Value) engine.Value {
	return r.LayerNorm(p.layer(r, x, h.transform), h.gamma, h.beta, h.eps)
}

// loadMasked packs the head. If the checkpoint has no matrix for the decoder, the decoder shares
// the table of words, unless tie_word_embeddings is false.
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

// readSpladePooling reads the configuration of the SpladePooling module in folder. Without one, or
// if it does not say otherwise, the output is log(1 + x) of the largest logits.
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
