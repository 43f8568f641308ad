package arch

import (
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// Size is the memory that Load needs, in bytes.
type Size struct {
	Packed int64 // on the device, kept: the weights once, to within a few percent
	Linear int64 // of them: those of which engine.Copied makes a copy on each node
	// of the host, in addition, at the worst moment: tensors that were read and are being packed
	Passing int64
}

// SizeOf estimates the memory of a Load with the same arguments. It reads the configuration and the
// headers of the weights and packs nothing. Errors are those of Load.
func SizeOf(dir string, dev *engine.Device, o Options) (Size, error) {
	m, parts, err := describe(dir, dev, o)
	if err != nil {
		return Size{}, err
	}
	var s sizing
	if err := m.pack(dir, parts, &packer{sizing: &s}); err != nil {
		return Size{}, err
	}
	return Size{Packed: s.packed, Linear: s.linear, Passing: s.peak - s.packed}, nil
}

// On returns the bytes of the weights on so many nodes.
func (s Size) On(nodes int, placement engine.Placement) int64 {
	if placement != engine.Copied {
		return s.Packed
	}
	return s.Packed + int64(nodes-1)*s.Linear
}

// sizing counts the memory of a load without packing anything.
type sizing struct {
	packed int64      // weights so far
	linear int64      // of them, linear weights that are large enough to be placed
	buffer int64      // the present size of the load's buffer
	found  *inventory // what was asked for; nil: nobody wants to know
	peak   int64      // the largest sum of packed, buffer and the beside of add
}

// read counts a weight that is packed from tensors of that many bytes.
func (s *sizing) read(spec engine.WeightSpec, rows, bytes int64) {
	s.buffer = weights.BufferSize(s.buffer, bytes)
	packed := packedBytes(spec, rows)
	if spec.Kind == engine.LinearWeight && packed >= engine.PlacedFrom {
		s.linear += packed
	}
	s.add(packed, 0)
}

// add counts a weight of packed bytes. beside is the memory that the values take while they are
// packed, apart from the load's buffer.
func (s *sizing) add(packed, beside int64) {
	s.packed += packed
	s.peak = max(s.peak, s.packed+s.buffer+beside)
}

// packedBytes estimates the memory of rows rows packed as spec says. Matrices are in the operand
// type, tables in the type of activations, vectors in float32.
func packedBytes(spec engine.WeightSpec, rows int64) int64 {
	width := int64(2)
	switch {
	case spec.Compute == engine.ComputeF32 || spec.Kind == engine.VectorWeight:
		width = 4
	case spec.Kind == engine.LinearWeight &&
		(spec.Compute == engine.ComputeINT8 || spec.Compute == engine.ComputeFP8):
		return rows * (spec.K + 8) // a scale and a sum for each row
	}
	return width * rows * spec.K
}
