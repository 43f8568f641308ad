package arch

import "github.com/sie-engine/sie/runtime/engine"

// gliclassSqueeze weighs the states behind the blocks of an encoder, U_1 … U_K, for each text: s =
// σ(W₂·relu(W₁·z)), z_k = w·(mean of U_k over the text's tokens), and x = P·Σ s_k·U_k. P is applied
// to the rows that the head reads alone, behind a pooling that is linear, before any other.
type gliclassSqueeze struct {
	squeeze, first, second layer
	spread                 []layer // [C, K] each: 1/2 + t_k/2 in every column, t = tanh of the half
	project                layer
	unbiased               layer
	zeros, bias            *engine.Weight // [C]: of a LayerNorm that makes each row P's bias
}

func (h *gliclassHead) loadSqueeze(p *packer) {
	const name = "layer_wise_attention."
	c, k := h.config.columns, h.config.layers
	s := &gliclassSqueeze{
		squeeze: p.layer(1, c, name+"squeeze", engine.NoAct),
		first:   p.layer(k/2, k, name+"W1", engine.ReLU),
		project: p.layer(c, c, name+"output_projection", engine.NoAct),
	}
	s.unbiased = layer{weight: s.project.weight}
	s.zeros, s.bias = p.values(engine.VectorWeight, 1, make([]float32, c)), s.project.bias
	// σ(x) = 1/2 + tanh(x/2)/2
	weight, bias := p.hostTensor(name+"W2.weight", k, k/2), p.hostTensor(name+"W2.bias", k)
	if p.err != nil {
		return
	}
	for _, values := range [][]float32{weight, bias} {
		for i := range values {
			values[i] /= 2
		}
	}
	s.second = layer{weight: p.values(engine.LinearWeight, k/2, weight),
		bias: p.values(engine.VectorWeight, 1, bias), act: engine.Tanh}
	half := make([]float32, c)
	for i := range half {
		half[i] = 0.5
	}
	halves := p.values(engine.VectorWeight, 1, half)
	for i := range k {
		spread := make([]float32, c*k)
		for row := range c {
			spread[row*k+i] = 0.5
		}
		s.spread = append(s.spread, layer{weight: p.values(engine.LinearWeight, k, spread), bias: halves})
	}
	h.squeeze = s
}

// record records the text's and the labels' rows of x.
func (s *gliclassSqueeze) record(h *gliclassHead, r *recording) (text, classes engine.Value) {
	blocks := r.states[1:]
	z := make([]engine.Value, len(blocks))
	for i, u := range blocks {
		z[i] = s.squeeze.apply(r.Recorder, r.Pool(u, engine.PoolMean))
	}
	for len(z) > 1 {
		n := min(len(z), engine.MaxJoined)
		z = append([]engine.Value{r.Join(z[:n]...)}, z[n:]...)
	}
	t := s.second.apply(r.Recorder, s.first.apply(r.Recorder, z[0]))
	pooled := h.config.squeezedPooled()
	if !pooled { // P's bias, and zeros where there is no row
		text = h.textRows(r, r.LayerNorm(blocks[0], s.zeros, s.bias, torchEps))
	}
	for i, u := range blocks {
		weight, project := s.spread[i].apply(r.Recorder, t), s.unbiased
		if i == 0 {
			project = s.project
		}
		rows := r.Product(r.TakeSequence(weight, engine.RowsWords), h.classesOf(r, u))
		classes = r.Linear(rows, project.weight, project.bias, engine.NoAct, classes)
		if pooled {
			rows = r.Product(weight, h.poolText(r, h.textRows(r, u)))
		} else {
			rows = r.Product(r.TakeSequence(weight, engine.RowsMarkers), h.textRows(r, u))
			project = s.unbiased
		}
		text = r.Linear(rows, project.weight, project.bias, engine.NoAct, text)
	}
	if !pooled {
		text = h.poolText(r, text)
	}
	return text, classes
}
