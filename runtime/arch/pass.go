package arch

import "github.com/sie-engine/sie/runtime/engine"

// pass says how an encoder's forward pass is recorded.
type pass struct {
	// keep says which row of each sequence is read afterwards. With PoolCLS or PoolLast the last
	// block computes only what that row needs. That changes no bit of the row: rows influence each
	// other only in attention, and attention still has every key.
	keep engine.Pooling
	// attendKept makes every token attend only to the tokens that the batch keeps
	// (Want.AttendKept).
	attendKept bool
	// behind makes the sequences stand behind the prefixes that the batch gives them, whose keys
	// and values are in the state, block i's in segment i + 1.
	behind bool
	// adapters change linears for the sequences that name them.
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

// linear records a linear with the adapters that change it.
func (p pass) linear(
	r *engine.Recorder, x engine.Value, w, bias *engine.Weight, act engine.Act, residual engine.Value,
) engine.Value {
	if pairs := p.pairs(w); pairs != nil {
		return r.LinearLoRA(x, w, bias, act, residual, pairs)
	}
	return r.Linear(x, w, bias, act, residual)
}

// gated records a gated linear with the adapters that change it.
func (p pass) gated(
	r *engine.Recorder, x engine.Value, w, bias *engine.Weight, gate engine.Gate, residual engine.Value,
) engine.Value {
	if pairs := p.pairs(w); pairs != nil {
		return r.GatedLoRA(x, w, bias, gate, residual, pairs)
	}
	return r.GatedLinear(x, w, bias, gate, residual)
}

// pairs returns each adapter's part of a linear, or nil where no adapter changes it.
func (p pass) pairs(w *engine.Weight) []engine.LoRA {
	pairs, changed := make([]engine.LoRA, len(p.adapters)), false
	for i, a := range p.adapters {
		pairs[i] = a.pairs[w]
		changed = changed || pairs[i].A != nil
	}
	if !changed {
		return nil
	}
	return pairs
}

// layer records a layer of a head with the adapters that change it.
func (p pass) layer(r *engine.Recorder, x engine.Value, l layer) engine.Value {
	return p.linear(r, x, l.weight, l.bias, l.act, engine.NoValue)
}
