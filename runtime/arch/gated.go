package arch

import "github.com/sie-engine/sie/runtime/engine"

// gateHalf is the gate or the multiplier of a gated linear as a checkpoint stores it. Its n rows
// begin at row first of a tensor. Published models either have a tensor for each half, or one for
// both, some with the gate first and some with it last.
type gateHalf struct {
	name  string
	first int64
}

// gated packs the matrix of a gated linear, [2n, k]: the rows of the half that passes the
// activation alternate with those of the half that multiplies the result.
func (p *packer) gated(n, k int64, gate, up gateHalf) *engine.Weight {
	return p.packHalves(engine.WeightSpec{Kind: engine.LinearWeight, Compute: p.compute, K: k},
		n, []int64{k}, gate, up)
}

// gatedBias packs the bias of a gated linear, [2n], in the order of gated.
func (p *packer) gatedBias(n int64, gate, up gateHalf) *engine.Weight {
	return p.packHalves(engine.WeightSpec{Kind: engine.VectorWeight, Compute: p.compute, K: 1},
		n, nil, gate, up)
}

// packHalves packs the halves of n rows each, whose rows are of the shape row.
func (p *packer) packHalves(spec engine.WeightSpec, n int64, row []int64, gate, up gateHalf) *engine.Weight {
	rows := n
	if gate.name == up.name {
		rows = 2 * n
	}
	shape := append([]int64{rows}, row...)
	spec.Layout = engine.InterleaveGateUp
	return p.packParts(spec, []part{{gate.name, shape, gate.first, n}, {up.name, shape, up.first, n}})
}

// halves says where a gated linear's halves begin among the stacked rows of its linears.
type halves struct{ gate, up int64 }

// interleave returns the stacked rows of a gated linear in the order in which gated packs them. b
// has rows of rank values.
func (h *halves) interleave(b []float32, rank int) []float32 {
	out := make([]float32, 0, len(b))
	row := func(i int) []float32 { return b[i*rank : (i+1)*rank] }
	for i := range len(b) / rank / 2 {
		out = append(out, row(int(h.gate)+i)...)
		out = append(out, row(int(h.up)+i)...)
	}
	return out
}
