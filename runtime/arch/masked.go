package arch

import (
	"io/fs"
	"path"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
)

// OutSparse is sparse rows [B, Vocab]: the largest logit of each word, by SPLADE.
const OutSparse Output = "sparse"

// Splade is the task of sparse encoders, which have the masked-language-model head.
var Splade = Task{&head{
	name:     "splade",
	loadedBy: "AutoModelForMaskedLM",
	outputs:  []Output{OutSparse},
	made: func(s *saved) bool {
		return s.modelType == "SparseEncoder" || s.has("SpladePooling")
	},
	read:    readSplade,
	linears: func(n headNames) []string { return []string{n.masked.transform.dense, n.masked.decoder} },
}}

// readSplade reads the modules of a sparse encoder.
func readSplade(dir fs.FS) (chain, loader, error) {
	c, err := readSparseChain(dir)
	if err != nil {
		return c.chain, nil, err
	}
	limits, err := readPrompts(dir)
	if err == nil && limits.MaxActiveDims != nil {
		err = refuse(promptsFile, "max_active_dims",
			"is %d; sparse vectors cut to their largest weights are not supported", *limits.MaxActiveDims)
	}
	return c.chain, c.load, err
}

// load packs the head and reads the queries' table.
func (c sparseChain) load(l *loading) (err error) {
	if err := l.needs(l.names.masked.decoder); err != nil {
		return err
	}
	if l.m.QueryWeights, err = readQueryTable(l.dir, c.queryTable); err != nil {
		return err
	}
	h, err := loadMasked(files.Dir(l.folder()), l.names.masked, l.shape, l.p)
	if err != nil {
		return err
	}
	if h.transform.weight != nil {
		l.adapts(h.transform.weight, l.names.masked.transform.dense, l.shape.words, l.shape.columns)
	}
	l.fixes(l.names.masked.decoder,
		"the words' logits are computed without adapters; train one for the linears before them")
	l.gives(OutSparse, given{rows: engine.PoolMean, record: func(r *recording) {
		r.OutputSparse(r.Splade(h.beforeDecoder(r.Recorder, r.pass, r.x), h.decoder, h.bias), c.transform)
	}})
	return nil
}

// maskedNames holds the names of a masked-language-model head. The head is a layer to the width of
// the table of words with an activation and a LayerNorm, then one logit for each entry of the
// vocabulary. The logits' matrix may be the table of words.
type maskedNames struct {
	transform transformNames
	words     string // the table of words, in the encoder
	decoder   string
	// where a checkpoint may keep the decoder's bias; the first that exists is used. Empty: it has
	// none
	biases []string
}

// maskedHead is the packed head. One operation computes the logits of a SPLADE model and takes the
// largest of a sequence (Formal 2021, arXiv:2109.10086), so the decoder is separate.
type maskedHead struct {
	transform     transform
	decoder, bias *engine.Weight // [vocab, E], [vocab] or nil
}

// beforeDecoder records y[T, E]; the logits are y·decoderᵀ + bias.
func (h *maskedHead) beforeDecoder(r *engine.Recorder, p pass, x engine.Value) engine.Value {
	return h.transform.record(r, p, x)
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
	h := &maskedHead{transform: q.transform(n.transform, shape.words, shape.columns)}
	matrix := n.decoder + ".weight"
	if _, own := p.from.Tensor(matrix); !own && tied.Tie {
		matrix = p.prefix + n.words
	}
	h.decoder = q.linear(shape.vocab, shape.words, matrix)
	if len(n.biases) > 0 {
		h.bias = q.vector(shape.vocab, q.first(n.biases...))
	}
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
