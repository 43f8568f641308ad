package arch

import "github.com/sie-engine/sie/runtime/engine"

// pass is one way through an encoder.
type pass struct {
	// keep says which row of each sequence is read afterwards: with PoolCLS or PoolLast the last
	// block computes only what that row needs, which changes no bit of it, because rows meet in
	// attention alone and there every key is still there.
	keep engine.Pooling
	// attendKept hides from every token those that the batch does not keep (Want.AttendKept).
	attendKept bool
	// adapters change linears for the sequences that a batch names them for.
	adapters []*Adapter
	// observe, if not nil, is called with the state after the embeddings (0) and after each block
	// (1 …).
	observe func(i int, x engine.Value)
}

func (p pass) see(i int, x engine.Value) {
	if p.observe != nil {
		p.observe(i, x)
	}
}

// linear records a linear, with what adapters add to it.
func (p pass) linear(r *engine.Recorder, x engine.Value, w, bias *engine.Weight, act engine.Act, residual engine.Value) engine.Value {
	pairs, changed := make([]engine.LoRA, len(p.adapters)), false
	for i, a := range p.adapters {
		pairs[i] = a.pairs[w]
		changed = changed || pairs[i].A != nil
	}
	if !changed {
		return r.Linear(x, w, bias, act, residual)
	}
	return r.LinearLoRA(x, w, bias, act, residual, pairs)
}

// layer records a layer of a head, with what adapters add to it.
func (p pass) layer(r *engine.Recorder, x engine.Value, l layer) engine.Value {
	return p.linear(r, x, l.weight, l.bias, l.act, engine.NoValue)
}
