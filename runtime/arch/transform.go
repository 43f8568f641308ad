package arch

import "github.com/sie-engine/sie/runtime/engine"

// transformNames names a layer that stands before a head's logits: a matrix with an activation, in
// some families with a LayerNorm behind it.
type transformNames struct {
	dense     string // the matrix; "": there is no such layer
	inEncoder bool   // its name takes the encoder's prefix
	noBias    bool
	act       engine.Act
	norm      string // "": none
	noBeta    bool
	eps       float64
}

// transform is the packed layer. Without a matrix it is the identity.
type transform struct {
	layer
	gamma, beta *engine.Weight // gamma is nil where there is no LayerNorm
	eps         float32
}

// transform packs the layer, whose matrix is [n, k].
func (p *packer) transform(names transformNames, n, k int64) transform {
	if names.dense == "" {
		return transform{}
	}
	t := transform{layer: layer{weight: p.linear(n, k, names.dense+".weight"), act: names.act},
		eps: float32(names.eps)}
	if !names.noBias {
		t.bias = p.vector(n, names.dense+".bias")
	}
	if names.norm != "" {
		t.gamma, t.beta = p.normOf(n, names.norm, !names.noBeta)
	}
	return t
}

// record records the layer, with the adapters that change it.
func (t transform) record(r *engine.Recorder, p pass, x engine.Value) engine.Value {
	if t.weight == nil {
		return x
	}
	if x = p.layer(r, x, t.layer); t.gamma != nil {
		x = r.LayerNorm(x, t.gamma, t.beta, t.eps)
	}
	return x
}
