package arch

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sie-engine/sie/internal/half"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/lora"
)

// linear is a matrix of a model. It stacks several linears of the checkpoint, each [n, k], or of
// different heights.
type linear struct {
	weight *engine.Weight
	names  []string // in the checkpoint, without the prefix that the saving class added
	n, k   int64
	gated  *halves // of a gated linear; nil for others
	rows   []int64 // of each linear, where they differ; nil: n
}

// Adapter is a LoRA adapter packed for a model. The caller closes it after the programs recorded
// with it and before the model. Read-only; safe for concurrent use.
type Adapter struct {
	Rank  int // the largest
	pairs map[*engine.Weight]engine.LoRA
	owner *packer
}

// LoadAdapter reads the PEFT adapter in dir and packs it. Errors: those of lora.Read and of the
// engine.
func (m *Model) LoadAdapter(dir string) (*Adapter, error) {
	lockorder.AssertNoneHeld("packing an adapter")
	linears := slices.Concat(m.encoder.linears(), m.adapts)
	base := lora.Base{Linears: make(map[string]lora.Shape), Unused: m.unused(), Fixed: m.fixed}
	for _, l := range linears {
		for i, name := range l.names {
			n := l.n
			if l.rows != nil {
				n = l.rows[i]
			}
			base.Linears[name] = lora.Shape{N: int(n), K: int(l.k)}
		}
	}
	read, err := lora.Read(dir, base)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Rank: read.Rank, pairs: make(map[*engine.Weight]engine.LoRA), owner: &packer{dev: m.device}}
	dtype, err := adapterType(m.device, m.Compute)
	if err != nil {
		return nil, err
	}
	for _, l := range linears {
		pair, ok := read.Fused(l.names...)
		if !ok {
			continue
		}
		if _, twice := a.pairs[l.weight]; twice {
			a.Close()
			return nil, refuse("adapter_model", l.names[0],
				"is there, and so is a part of the same linear by another name")
		}
		if l.gated != nil {
			pair.B = l.gated.interleave(pair.B, pair.Rank)
		}
		a.pairs[l.weight] = engine.LoRA{A: a.owner.data(l.k, dtype, encoded(pair.A, dtype)),
			B: a.owner.data(int64(pair.Rank), dtype, encoded(pair.B, dtype))}
	}
	if a.owner.err != nil {
		a.Close()
		return nil, a.owner.err
	}
	return a, nil
}

// unused lists linears that heads of other tasks have and that no output of this model depends on.
func (m *Model) unused() []string {
	names := m.encoder.heads()
	var own, all []string
	if m.Task.linears != nil {
		own = m.Task.linears(names)
	}
	for _, t := range heads {
		if t == m.Task || t.linears == nil {
			continue
		}
		for _, name := range t.linears(names) {
			if !slices.Contains(own, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// adapterType returns the element type of adapters on the device, for a model of that class.
func adapterType(dev *engine.Device, compute engine.Compute) (engine.DType, error) {
	info, err := dev.Info()
	switch {
	case err != nil:
		return 0, err
	case info.Kind != engine.CUDA:
		return engine.F32, nil
	case compute == engine.ComputeF16:
		return engine.F16, nil
	}
	return engine.BF16, nil
}

// encoded converts values to the device's type, rounded to nearest, ties to even.
func encoded(values []float32, dtype engine.DType) []byte {
	out := make([]byte, 0, int(dtype.RowBytes(int64(len(values)))))
	for _, v := range values {
		switch dtype {
		case engine.BF16:
			bits := math.Float32bits(v) // finite: lora.Read says so
			out = binary.LittleEndian.AppendUint16(out, uint16((bits+0x7fff+bits>>16&1)>>16))
		case engine.F16:
			out = binary.LittleEndian.AppendUint16(out, half.FromFloat32(v))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// Bytes returns the size of the adapter on the device.
func (a *Adapter) Bytes() int64 { return a.owner.bytes }

// Close frees the adapter. No program recorded with it may be open.
func (a *Adapter) Close() { a.owner.close() }
