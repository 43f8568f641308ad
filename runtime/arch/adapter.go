package arch

import (
	"encoding/binary"
	"math"

	"github.com/sie-engine/sie/internal/half"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/lora"
)

// linear is a matrix of a model. It stacks several linears of the checkpoint, each [n, k].
type linear struct {
	weight *engine.Weight
	names  []string // in the checkpoint, without the prefix that the saving class added
	n, k   int64
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
	lockorder.None("packing an adapter")
	linears, fixed, err := m.linears()
	if err != nil {
		return nil, err
	}
	base := lora.Base{Linears: make(map[string]lora.Shape), Unused: m.unused(), Fixed: fixed}
	for _, l := range linears {
		for _, name := range l.names {
			base.Linears[name] = lora.Shape{N: int(l.n), K: int(l.k)}
		}
	}
	read, err := lora.Read(dir, base)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Rank: read.Rank, pairs: make(map[*engine.Weight]engine.LoRA), owner: &packer{dev: m.device}}
	dtype, err := m.adapterType()
	if err != nil {
		return nil, err
	}
	for _, l := range linears {
		pair, ok := read.Fused(l.names...)
		if !ok {
			continue
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

// linears returns the linears that an adapter can change: the encoder's, and those of the task's
// head before its last operation. fixed holds the other linears that outputs depend on, by name,
// each with the reason why it cannot be adapted.
func (m *Model) linears() (all []linear, fixed map[string]string, err error) {
	info, err := m.device.Info()
	if err != nil {
		return nil, nil, err
	}
	all, fixed = m.encoder.linears(), make(map[string]string)
	names, c := m.encoder.heads(), m.encoder.shape().columns
	if head := m.heads.classifier; head != nil {
		if info.Kind == engine.CUDA {
			const why = "the head is computed in float32, which adapters on a GPU are not; train one for the encoder's linears"
			fixed[names.pooler], fixed[names.logits] = why, why
		} else {
			all = append(all, linear{head[0].weight, []string{names.pooler}, c, c}, linear{head[1].weight, []string{names.logits}, int64(len(m.Labels)), c})
		}
	}
	if head := m.heads.tagger; head != nil {
		all = append(all, linear{head.weight, []string{names.tag}, int64(len(m.Labels)), c})
	}
	if head := m.heads.masked; head != nil {
		all = append(all, linear{head.transform.weight, []string{names.masked.transform}, m.encoder.shape().words, c})
		fixed[names.masked.decoder] = "the words' logits are computed without adapters; train one for the linears before them"
	}
	return all, fixed, nil
}

// unused lists linears that the model's family has and that no output of its task depends on.
func (m *Model) unused() []string {
	h, all := m.encoder.heads(), []string{}
	if m.heads.classifier == nil {
		all = append(all, h.pooler, "pooler.dense", "classifier.dense", "classifier.out_proj")
		if m.heads.tagger == nil {
			all = append(all, h.logits, "classifier")
		}
	}
	if m.heads.masked == nil {
		all = append(all, h.masked.transform, h.masked.decoder)
	}
	return all
}

// adapterType returns the element type of adapters on the device.
func (m *Model) adapterType() (engine.DType, error) {
	info, err := m.device.Info()
	switch {
	case err != nil:
		return 0, err
	case info.Kind != engine.CUDA:
		return engine.F32, nil
	case m.Compute == engine.ComputeF16:
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
