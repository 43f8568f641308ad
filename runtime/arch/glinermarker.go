package arch

import "github.com/sie-engine/sie/runtime/engine"

// spanMarker is the span_mode of GLiNER's first releases, among them NuNER Zero. Its span layer has
// no hidden layer behind the words:
//
//	y = (W·[relu(s) ; relu(e)] + b)·p
//
// The scorer computes relu(A + B)·M. As o = W·[…] + b is relu(o) − relu(−o), A and B have the rows
// of W and of −W for a start and an end, and M is [p ; −p].
const spanMarker = "marker"

// loadMarkerLayer packs the layer as engine.OutputSpans takes it.
func loadMarkerLayer(p *packer, d int64) (s glinerSpan) {
	const at = "span_rep_layer.span_rep_layer."
	words := func(name string) []layer {
		return []layer{p.layer(2*d, d, name+".0", engine.ReLU), p.layer(d, 2*d, name+".3", engine.ReLU)}
	}
	s.start, s.end = words(at+"project_start"), words(at+"project_end")
	s.label = []layer{p.layer(4*d, d, "prompt_rep_layer.0", engine.ReLU)}
	out, label := p.affineOf(d, 2*d, at+"out_project"), p.affineOf(d, 4*d, "prompt_rep_layer.3")
	if p.err != nil {
		return s
	}
	starts := out.columns(0, d)
	starts.bias = out.bias
	s.start = append(s.start, starts.mirrored().pack(p, engine.NoAct))
	s.end = append(s.end, out.columns(d, d).mirrored().pack(p, engine.NoAct))
	s.labelRows = label.mirrored().pack(p, engine.NoAct)
	s.labelBias = affine{in: 4 * d, out: 1, weight: make([]float32, 4*d)}.pack(p, engine.NoAct) // none
	return s
}

// mirrored returns [y ; −y].
func (a affine) mirrored() affine {
	m := affine{in: a.in, out: 2 * a.out}
	for _, values := range []struct {
		from []float32
		to   *[]float32
	}{{a.weight, &m.weight}, {a.bias, &m.bias}} {
		*values.to = append(*values.to, values.from...)
		for _, v := range values.from {
			*values.to = append(*values.to, -v)
		}
	}
	return m
}
