package arch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// Checkpoint gives an architecture its tensors. *weights.Checkpoint implements it.
type Checkpoint interface {
	Names() []string
	Tensor(name string) (weights.Tensor, bool)
}

// packer checks tensors against the shapes a configuration implies and packs them on a device. The
// first error sticks: later calls return nil, so that loading an architecture reads top to bottom.
type packer struct {
	dev       *engine.Device
	from      Checkpoint
	file      string // for messages
	compute   engine.Compute
	asked     bool // compute was asked for, not chosen here
	placement engine.Placement
	group     engine.WeightGroup
	prefix    string
	nested    nested // where the encoder is
	packed    []*engine.Weight
	bytes     int64
	denormals int64           // values of the checkpoint that became 0
	buffer    *weights.Buffer // the parts of one weight, which are read together
	sizing    *sizing         // not nil: weights are counted and not packed
	err       error
}

// findPrefix chooses the first of prefixes with which the checkpoint has the tensor.
func (p *packer) findPrefix(name string, prefixes []string) {
	if p.nested.prefix != "" {
		prefixes = []string{p.nested.prefix}
	}
	for _, prefix := range prefixes {
		if _, ok := p.from.Tensor(prefix + name); ok {
			p.prefix = prefix
			return
		}
	}
	p.fail(refuse(p.file, name,
		"no such tensor, also not with the prefixes %q: is this checkpoint of another architecture?",
		prefixes))
}

// maxHeadDim is the largest width of an attention head on a CPU. cardHeadDims are the widths that
// have a GPU kernel.
const maxHeadDim = 256

var cardHeadDims = []int64{32, 64, 128, 256}

// checkHeadDim refuses heads of d columns if the device has no attention for them. key is the key
// of config.json that sets d.
func (p *packer) checkHeadDim(d int64, key string) error {
	info, err := p.dev.Info()
	switch {
	case err != nil:
		return err
	case d > maxHeadDim:
		return refuse(configFile, key, "gives heads of %d columns; at most %d are supported", d, maxHeadDim)
	case info.Kind == engine.CUDA && !slices.Contains(cardHeadDims, d):
		return refuse(configFile, key,
			"gives heads of %d columns, which GPUs have no kernel for (32, 64, 128 and 256 they have); serve it with --device cpu",
			d)
	}
	return nil
}

// checkDistances refuses heads of d columns if the device has no attention by distance for them.
// key is the key of config.json that sets d.
func (p *packer) checkDistances(d int64, key string) error {
	info, err := p.dev.Info()
	if err != nil {
		return err
	}
	if most := int64(128); info.Kind == engine.CUDA && d > most {
		return refuse(configFile, key,
			"gives heads of %d columns; GPUs compute attention by distance for up to %d; serve it with --device cpu",
			d, most)
	}
	return nil
}

func (p *packer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// linear packs matrices of k columns, stacked, as the parts of a fused projection.
func (p *packer) linear(n, k int64, names ...string) *engine.Weight {
	return p.pack(engine.LinearWeight, []int64{n, k}, names)
}

// stack packs matrices of k columns and of those numbers of rows, one after another.
func (p *packer) stack(rows []int64, k int64, names ...string) *engine.Weight {
	parts := make([]part, len(names))
	for i, name := range names {
		parts[i] = part{name: name, shape: []int64{rows[i], k}, rows: rows[i]}
	}
	return p.packParts(engine.WeightSpec{Kind: engine.LinearWeight, Compute: p.compute, K: k}, parts)
}

// stackVectors packs vectors of those lengths, one after another.
func (p *packer) stackVectors(lengths []int64, names ...string) *engine.Weight {
	parts := make([]part, len(names))
	for i, name := range names {
		parts[i] = part{name: name, shape: []int64{lengths[i]}, rows: lengths[i]}
	}
	return p.packParts(engine.WeightSpec{Kind: engine.VectorWeight, Compute: p.compute, K: 1}, parts)
}

// linearAfterAttention packs the matrix that reads attention's output.
func (p *packer) linearAfterAttention(n, k int64, names ...string) *engine.Weight {
	return p.packAs(afterAttention(p.compute), engine.LinearWeight, []int64{n, k}, names)
}

// table packs a lookup table.
func (p *packer) table(n, k int64, name string) *engine.Weight {
	return p.pack(engine.TableWeight, []int64{n, k}, []string{name})
}

// vector packs vectors of n elements, one after another.
func (p *packer) vector(n int64, names ...string) *engine.Weight {
	return p.pack(engine.VectorWeight, []int64{n}, names)
}

// segments packs the table of a text's segments, [3, columns], or returns nil if the model has
// none. Afterwards nested no longer names it.
func (p *packer) segments(columns int64) *engine.Weight {
	if p.nested.segments == "" {
		return nil
	}
	q := p.head("", p.compute)
	w := q.table(segmentCount, columns, p.nested.segments)
	p.join(q)
	p.nested.segments = ""
	return w
}

// segmentCount is the number of segments of a text.
const segmentCount = 3

// norm packs the gamma and beta of a LayerNorm. Checkpoints of the first BERT release use these
// names; later ones say weight and bias.
func (p *packer) norm(n int64, name string) (gamma, beta *engine.Weight) {
	if _, old := p.from.Tensor(p.prefix + name + ".gamma"); old {
		return p.vector(n, name+".gamma"), p.vector(n, name+".beta")
	}
	return p.vector(n, name+".weight"), p.vector(n, name+".bias")
}

// normOf packs a LayerNorm's gamma and, where it has one, its beta.
func (p *packer) normOf(n int64, name string, beta bool) (*engine.Weight, *engine.Weight) {
	if beta {
		return p.norm(n, name)
	}
	return p.vector(n, name+".weight"), nil
}

// refuseBlocksFrom refuses a checkpoint with tensors of a block from number n on. Its names begin
// with the encoder's prefix, then layers, then the block's number.
func (p *packer) refuseBlocksFrom(layers string, n keyed) {
	for _, name := range p.from.Names() {
		rest, ok := strings.CutPrefix(name, p.prefix+layers)
		number, _, dot := strings.Cut(rest, ".")
		if i, err := strconv.ParseInt(number, 10, 64); ok && dot && err == nil && i >= n.value {
			p.fail(refuse(p.file, name, "is of block %d; %s is %d", i, n.key, n.value))
			return
		}
	}
}

// pack packs tensors that all have the given shape as the parts of one weight.
func (p *packer) pack(kind engine.WeightKind, shape []int64, names []string) *engine.Weight {
	return p.packAs(p.compute, kind, shape, names)
}

// packAs is pack with another class.
func (p *packer) packAs(
	compute engine.Compute, kind engine.WeightKind, shape []int64, names []string,
) *engine.Weight {
	spec := engine.WeightSpec{Kind: kind, Compute: compute, K: 1}
	if len(shape) == 2 {
		spec.K = shape[1]
	}
	parts := make([]part, len(names))
	for i, name := range names {
		parts[i] = part{name: name, shape: shape, rows: shape[0]}
	}
	return p.packParts(spec, parts)
}

// part is one part of a weight: rows rows of a tensor of that shape, from row first on.
type part struct {
	name        string
	shape       []int64
	first, rows int64
}

// packParts packs parts of tensors as one weight. It reads a tensor once, however many parts it
// has. spec lacks the type and the parts.
func (p *packer) packParts(spec engine.WeightSpec, parts []part) *engine.Weight {
	if p.err != nil {
		return nil
	}
	tensors, bytes, rows := map[string]weights.Tensor{}, int64(0), int64(0)
	for _, part := range parts {
		rows += part.rows
		if _, again := tensors[part.name]; again {
			continue
		}
		t, dtype, err := p.find(p.prefix+part.name, part.shape)
		if err == nil && len(tensors) > 0 && dtype != spec.DType {
			err = refuse(p.file, p.prefix+part.name, "has dtype %s, but %s beside it has %s",
				t.DType, parts[0].name, tensors[parts[0].name].DType)
		}
		if p.sizing != nil && p.sizing.found.note(p, p.prefix+part.name, err) && err != nil {
			continue
		}
		if err != nil {
			p.fail(err)
			return nil
		}
		tensors[part.name], spec.DType = t, dtype
		bytes += t.Bytes()
	}
	if p.sizing != nil {
		p.sizing.read(spec, rows, bytes)
		return nil
	}
	if err := p.buffer.Reserve(bytes); err != nil {
		p.fail(err)
		return nil
	}
	read, width := map[string][]byte{}, spec.DType.RowBytes(spec.K)
	for _, part := range parts {
		data, ok := read[part.name]
		if !ok {
			var err error
			if data, err = p.buffer.Read(tensors[part.name]); err != nil {
				p.fail(err)
				return nil
			}
			read[part.name] = data
		}
		data = data[part.first*width : (part.first+part.rows)*width]
		spec.Parts = append(spec.Parts, engine.Part{Data: data, Rows: part.rows})
	}
	w, err := p.create(spec)
	if err != nil {
		p.fail(fmt.Errorf("%s: %s: %w", p.file, p.prefix+parts[0].name, err))
	}
	for _, t := range tensors {
		t.Release()
	}
	return w
}

// create packs a weight, which p then owns, or returns nil and an error.
func (p *packer) create(spec engine.WeightSpec) (*engine.Weight, error) {
	spec.Placement, spec.Group = p.placement, p.group
	w, err := p.dev.NewWeight(spec)
	if err != nil {
		return nil, err
	}
	p.packed = append(p.packed, w)
	p.bytes += w.Bytes()
	p.denormals += w.Denormals()
	return w, nil
}

// find returns the tensor with that full name if it has the shape and a type that can be packed.
func (p *packer) find(name string, shape []int64) (weights.Tensor, engine.DType, error) {
	t, ok := p.from.Tensor(name)
	if !ok {
		return t, 0, refuse(p.file, name, "no such tensor; shape %v is wanted", shape)
	}
	if !slices.Equal(t.Shape, shape) {
		return t, 0, refuse(p.file, name, "has shape %v; the configuration asks for %v", t.Shape, shape)
	}
	switch t.DType {
	case weights.F32:
		return t, engine.F32, nil
	case weights.F16:
		return t, engine.F16, nil
	case weights.BF16:
		return t, engine.BF16, nil
	}
	return t, 0, refuse(p.file, name, "has dtype %s; F32, F16 and BF16 can be read", t.DType)
}

// close frees the packed weights.
func (p *packer) close() {
	for _, w := range p.packed {
		w.Close()
	}
	p.packed = nil
}
