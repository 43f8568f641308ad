package engine

import (
	"fmt"
	"math"
	"unsafe"
)

// WeightKind says how operations use a weight.
type WeightKind uint32

// The kinds: a matrix [N, K] of a linear layer, a table [N, K] of rows looked up by index, a vector
// [N], and data [N, K], which stays dense and in its own type whatever the class.
const (
	LinearWeight WeightKind = 1
	TableWeight  WeightKind = 2
	VectorWeight WeightKind = 3
	DataWeight   WeightKind = 4
)

// Layout is the order in which the parts of a weight are joined.
type Layout uint32

// The layouts: one part after another, or the rows of a gate matrix and an up matrix alternating.
const (
	Concat Layout = iota
	InterleaveGateUp
)

// PlacedFrom is the size in bytes below which a packed weight lies where the kernel puts it.
const PlacedFrom = 64 << 10

// Placement says where the weights of a CPU that has several nodes lie. Elsewhere it has no effect.
type Placement uint32

// The placements: the pages of a weight in turn on each node that has executors; or, of linear
// weights, a copy on each.
const (
	Interleaved Placement = iota
	Copied
)

// PlacementNames are the placements by the names that users see.
var PlacementNames = map[Placement]string{Interleaved: "interleave", Copied: "copy"}

func (p Placement) String() string { return name("placement", p, PlacementNames) }

// WeightGroup names weights that are made and freed together, those of a model: on a CPU they share
// huge pages. 0 is no group.
type WeightGroup uint32

// NewWeightGroup returns a group that no weight of the device has yet.
func (d *Device) NewWeightGroup() WeightGroup { return WeightGroup(d.groups.Add(1)) }

// maxParts is the bound of sie_weight_desc.
const maxParts = 8

// Part is one source matrix, dense and row-major.
type Part struct {
	Data []byte // borrowed during NewWeight, any alignment; Rows·K elements, little-endian
	Rows int64
}

// WeightSpec describes a weight to be packed.
type WeightSpec struct {
	Kind    WeightKind
	Compute Compute
	DType   DType // of the source: F32, F16 or BF16; of data also I32
	Layout  Layout
	K       int64  // columns; 1 for a vector
	Parts   []Part // 1 to 8

	Placement Placement
	Group     WeightGroup
}

// Weight is a packed weight, opaque and read-only, shared by all programs recorded with it.
type Weight struct {
	dev    *Device
	handle unsafe.Pointer // guarded by dev.mu
	memory devicePtr      // GPU
	bytes  int64
	rows   int64
	// denormals is the number of the source's values that became 0
	denormals int64
	uses      int // programs that hold it, guarded by dev.mu
	mark      *mark
}

// NewWeight packs a weight. The sources are not needed afterwards. Errors: ErrInvalid when the
// parts do not hold what the spec says; ErrCorrupt for a source value that is not finite;
// ErrUnsupported; ErrNoMemory.
func (d *Device) NewWeight(s WeightSpec) (*Weight, error) {
	rows, err := s.check()
	if err != nil {
		return nil, err
	}
	w := &Weight{dev: d, rows: rows}
	d.do(func() { err = w.createLocked(s) })
	if err != nil {
		return nil, err
	}
	w.mark = watch(w, "weight")
	return w, nil
}

// createLocked packs the weight and, on a GPU, uploads it.
func (w *Weight) createLocked(s WeightSpec) error {
	h, err := cWeightCreate(w.dev.ptrLocked(), s, w.rows)
	if err != nil {
		return err
	}
	if w.dev.gpu != nil {
		if w.memory, err = w.dev.gpu.placeWeight(h); err != nil {
			cWeightFree(h)
			return err
		}
	}
	w.handle, w.bytes, w.denormals = h, cWeightBytes(h), cWeightDenormals(h)
	w.dev.open["weight"]++
	return nil
}

// check checks that each part holds Rows·K elements. C sees only pointers and cannot check it.
func (s WeightSpec) check() (rows int64, err error) {
	if len(s.Parts) == 0 || len(s.Parts) > maxParts {
		return 0, invalid("weight", fmt.Sprintf("%d parts: must be 1 to %d", len(s.Parts), maxParts))
	}
	if s.K <= 0 || s.K > math.MaxInt32 {
		return 0, invalid("weight", fmt.Sprintf("K is %d: must be 1 to %d", s.K, math.MaxInt32))
	}
	width := s.DType.RowBytes(s.K)
	if width == 0 {
		return 0, invalid("weight", "unknown source "+s.DType.String())
	}
	for i, p := range s.Parts {
		if p.Rows <= 0 || p.Rows > math.MaxInt32 {
			return 0, invalid("weight",
				fmt.Sprintf("part %d has %d rows: must be 1 to %d", i, p.Rows, math.MaxInt32))
		}
		if p.Rows > math.MaxInt64/width || int64(len(p.Data)) != p.Rows*width {
			return 0, invalid("weight", fmt.Sprintf("part %d has %d bytes: %d×%d %s are wanted",
				i, len(p.Data), p.Rows, s.K, s.DType))
		}
		rows += p.Rows
	}
	return rows, nil
}

// Bytes returns the packed size on the device, of all copies.
func (w *Weight) Bytes() int64 { return w.bytes }

// Denormals returns how many values of the source became 0, because they were too small for a
// normal float32.
func (w *Weight) Denormals() int64 { return w.denormals }

// Rows returns N, the sum of the parts' rows.
func (w *Weight) Rows() int64 { return w.rows }

// Close frees the weight. It panics while a program holds it.
func (w *Weight) Close() {
	uses := 0
	w.dev.do(func() {
		if uses = w.uses; w.handle == nil || uses > 0 {
			return
		}
		cWeightFree(w.handle)
		w.handle = nil
		if w.memory != 0 {
			w.dev.gpu.driver.free(w.memory)
		}
		w.mark.close()
		w.dev.open["weight"]--
	})
	if uses > 0 {
		panic(fmt.Sprintf("engine: Weight closed while %d programs hold it", uses))
	}
}
