package arch

import (
	"io/fs"
	"path"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// The outputs that are made of the tokens' vectors.
const (
	OutMulti  Output = "multivector" // token rows [K, TokenDim]: projected, not yet normalised
	OutMaxSim Output = "maxsim"      // values [B, 1]: each sequence against its query; rows normalised
	OutMuvera Output = "muvera"      // rows [B, ·]: folded, as Want.Muvera says
	OutSMVE   Output = "smve"        // sparse rows [B, ·]: folded, as Want.SMVE says
)

// ColBERT is the task of late-interaction models, which give a vector for each token (Khattab 2020,
// arXiv:2004.12832).
var ColBERT = Task{&head{
	name:    "colbert",
	outputs: []Output{OutMulti},
	made: func(s *saved) bool {
		return s.modelType == "MultiVectorEncoder" || s.has("Dense") && !s.has("Pooling") ||
			strings.HasSuffix(s.class, "ColBERT")
	},
	read: func(dir fs.FS) (chain, loader, error) {
		c := encoderAlone(taskFeatures)
		var modules []denseConfig
		var err error
		c.encoderDir, modules, err = readTokenChain(dir)
		return c, func(l *loading) error {
			layers, width, err := loadProjection(l.dir, modules, l.shape.columns, l.p)
			l.givesVectors(layers, width)
			return err
		}, err
	},
}}

// tokenVectors are the layers that turn a token's state into its vector.
type tokenVectors struct{ layers []layer }

// givesVectors makes the outputs of token vectors of that width those of the model.
func (l *loading) givesVectors(layers []layer, width int64) {
	v := &tokenVectors{layers}
	l.m.TokenDim = int(width)
	l.gives(OutMulti,
		given{rows: engine.PoolMean, record: func(r *recording) { r.OutputTokenRows(v.record(r)) }})
	l.gives(OutMaxSim, given{rows: engine.PoolMean, queries: true, record: func(r *recording) {
		r.OutputValues(r.MaxSim(v.record(r), true))
	}})
	l.gives(OutMuvera, given{rows: engine.PoolMean, record: func(r *recording) { r.foldDense(v.record(r)) }})
	l.gives(OutSMVE, given{rows: engine.PoolMean, record: func(r *recording) { r.foldSparse(v.record(r)) }})
}

// record records the tokens' vectors, once for all outputs of a program.
func (v *tokenVectors) record(r *recording) engine.Value {
	return r.once(v, func() engine.Value {
		x := r.x
		if !r.want.AttendKept { // with AttendKept, Keep chooses what tokens attend to, and all rows are read
			x = r.KeepRows(x)
		}
		return applyAll(r.Recorder, x, v.layers)
	})
}

// readTokenChain reads modules.json of a ColBERT model. It returns the folder of the encoder and
// the Dense modules over its tokens. Pooling and Normalize have no effect here.
func readTokenChain(dir fs.FS) (encoderDir string, _ []denseConfig, _ error) {
	modules, err := readModules(dir)
	if err != nil {
		return "", nil, err
	}
	var dense []denseConfig
	for i, m := range modules {
		switch {
		case (m.kind == "Transformer") != (i == 0):
			return "", nil, refuse(modulesFile, "type",
				"module %d is a %s; the chain must begin with its only Transformer", i, m.kind)
		case i == 0:
			encoderDir = m.path
		case m.kind == "Dense":
			d, err := readDense(dir, m.path, "token_embeddings")
			if err != nil {
				return "", nil, err
			}
			dense = append(dense, d)
		case m.kind != "Pooling" && m.kind != "Normalize" && m.kind != "Dropout":
			return "", nil, refuse(modulesFile, "type",
				"%q is not supported; Transformer and Dense are", m.class)
		}
	}
	return encoderDir, dense, nil
}

// loadProjection packs the layers that turn a token's state into its vector. They are the Dense
// modules of the chain, or without any the matrix `linear.weight` of the checkpoint. Layers without
// activation are multiplied into the layer after them. It also returns the number of columns of a
// vector.
func loadProjection(dir string, modules []denseConfig, columns int64, p *packer) ([]layer, int64, error) {
	if len(modules) == 0 {
		l, n, err := loadLinear(columns, p)
		return []layer{l}, n, err
	}
	var out []layer
	var pending *affine
	for _, c := range modules {
		if c.in != columns {
			return nil, 0, refuse(path.Join(c.module, configFile), "in_features",
				"is %d; the module before gives %d", c.in, columns)
		}
		a, err := readAffine(dir, c)
		if err != nil {
			return nil, 0, err
		}
		if pending != nil {
			a = p.joined(*pending, a)
		}
		if pending, columns = &a, c.out; c.act != engine.NoAct {
			out, pending = append(out, a.pack(p, c.act)), nil
		}
	}
	if pending != nil {
		out = append(out, pending.pack(p, engine.NoAct))
	}
	return out, columns, p.err
}
