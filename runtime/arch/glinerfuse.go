package arch

import "github.com/sie-engine/sie/runtime/engine"

// glinerFuser weighs the states behind the blocks of an encoder, U_1 … U_K, for each text, where
// fuse_layers says so: s = σ(W₂·relu(W₁·z)), z_k = w·(mean of U_k over the text's tokens), and
// x = P·Σ s_k·U_k. The mean is that of the text's own tokens, prompt included; the package's has
// the padding of its batch in it. P and the sum are linear, so that rows are taken before them; a
// word without tokens has P's bias.
type glinerFuser struct {
	squeeze, first, second layer
	spread                 []layer // [C, K] each: 1/2 + t_k/2 in every column, t = tanh of the half
	project                layer
}

// loadFuser packs the layers behind k blocks of c columns, in float32.
func loadFuser(p *packer, c, k int64) *glinerFuser {
	f := &glinerFuser{
		squeeze: p.layer(1, c, "squeeze", engine.NoAct),
		first:   p.layer(k/2, k, "W1", engine.ReLU),
		project: p.layer(c, c, "output_projection", engine.NoAct),
	}
	second := affine{in: k / 2, out: k, weight: p.hostTensor("W2.weight", k, k/2),
		bias: p.hostTensor("W2.bias", k)}
	if p.err != nil {
		return f
	}
	for _, values := range [][]float32{second.weight, second.bias} { // σ(x) = 1/2 + tanh(x/2)/2
		for i := range values {
			values[i] /= 2
		}
	}
	f.second = second.pack(p, engine.Tanh)
	for i := range k {
		spread := affine{in: k, out: c, weight: make([]float32, c*k), bias: make([]float32, c)}
		for row := range c {
			spread.weight[row*k+i], spread.bias[row] = 0.5, 0.5
		}
		f.spread = append(f.spread, spread.pack(p, engine.NoAct))
	}
	return f
}

// weights records s_k for each text, in C equal columns, for each block.
func (f *glinerFuser) weights(r *recording) (out []engine.Value) {
	var z []engine.Value
	for _, u := range r.states[1:] {
		z = append(z, f.squeeze.apply(r.Recorder, r.Pool(u, engine.PoolMean)))
	}
	for len(z) > 1 {
		n := min(len(z), engine.MaxJoined)
		z = append([]engine.Value{r.Join(z[:n]...)}, z[n:]...)
	}
	t := f.second.apply(r.Recorder, f.first.apply(r.Recorder, z[0]))
	for _, s := range f.spread {
		out = append(out, s.apply(r.Recorder, t))
	}
	return out
}

// rows records the rows of x that take takes of a state of tokens, for words or markers. weights
// are those of f.weights.
func (f *glinerFuser) rows(r *recording, weights []engine.Value, space engine.Rows,
	take func(tokens engine.Value) engine.Value) engine.Value {
	x, project := engine.NoValue, f.project
	for i, w := range weights {
		rows := r.Product(r.TakeSequence(w, space), take(r.states[1+i]))
		x, project.bias = r.Linear(rows, project.weight, project.bias, engine.NoAct, x), nil
	}
	return x
}
