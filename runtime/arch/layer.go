package arch

import (
	"encoding/binary"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// layer is a packed layer y = act(x·Wᵀ + bias). bias may be nil.
type layer struct {
	weight, bias *engine.Weight
	act          engine.Act
}

func (l layer) apply(r *engine.Recorder, x engine.Value) engine.Value {
	return r.Linear(x, l.weight, l.bias, l.act, engine.NoValue)
}

// applyAll applies layers one after another.
func applyAll(r *engine.Recorder, x engine.Value, layers []layer) engine.Value {
	for _, l := range layers {
		x = l.apply(r, x)
	}
	return x
}

// layer packs the linear layer with that name, [n, k], and its bias.
func (p *packer) layer(n, k int64, name string, act engine.Act) layer {
	return layer{weight: p.linear(n, k, name+".weight"), bias: p.vector(n, name+".bias"), act: act}
}

// head returns a packer for tensors of the same checkpoint with another prefix and class. join
// takes over what it packs.
func (p *packer) head(prefix string, compute engine.Compute) *packer {
	return &packer{dev: p.dev, from: p.from, file: p.file, compute: compute, prefix: prefix,
		placement: p.placement, group: p.group, buffer: p.buffer, sizing: p.sizing, err: p.err}
}

// join takes over the weights that q packed, and its error.
func (p *packer) join(q *packer) {
	p.packed = append(p.packed, q.packed...)
	p.bytes += q.bytes
	p.denormals += q.denormals
	p.fail(q.err)
}

// first returns the first of the names that the checkpoint has under p's prefix. If it has none of
// them, first returns names[0].
func (p *packer) first(names ...string) string {
	for _, name := range names {
		if _, ok := p.from.Tensor(p.prefix + name); ok {
			return name
		}
	}
	return names[0]
}

// littleEndian returns the bytes of values in the form of a weight's source.
func littleEndian[T float32 | int32](values []T) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		switch v := any(v).(type) {
		case float32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		case int32:
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		}
	}
	return out
}
