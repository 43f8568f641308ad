package arch

import (
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
)

// minQueryRows is the smallest room for query rows in a batch for MaxSim. 128 queries of ColBERT
// fit.
const minQueryRows = 4096

// Own returns the outputs of Program, those of the model's task.
func (m *Model) Own() Want {
	switch m.Task {
	case Splade:
		return Want{Sparse: true}
	case ColBERT:
		return Want{Multi: true}
	case Classify:
		return Want{Logits: true}
	case Tag:
		return Want{TokenLogits: true}
	}
	return Want{Dense: true, Pooling: m.Pooling}
}

// All returns all outputs that the model's task can give in one pass. For BGE-M3 they are three,
// for others those of Own.
func (m *Model) All() Want {
	want := m.Own()
	if m.Task == BGEM3 {
		want.TokenWeights, want.Multi = true, true
	}
	return want
}

// Record records another program over the same weights. The caller closes it before the model. An
// output without a head in the model is a *ModelError; one that the device cannot compute is an
// error of the engine.
func (m *Model) Record(want Want) (*engine.Program, error) { return m.record(want, false, nil) }

// RecordAdapted records a program as Record does, for batches whose sequences may each name one
// adapter. A sequence names it by index, -1 for none. The adapters must stay open until the program
// is closed.
func (m *Model) RecordAdapted(want Want, adapters []*Adapter) (*engine.Program, error) {
	return m.record(want, false, adapters)
}

// RecordPooling records a dense vector with another pooling, for a profile that asks for it.
func (m *Model) RecordPooling(p engine.Pooling) (*engine.Program, error) {
	return m.record(Want{Dense: true, Pooling: p}, false, nil)
}

func (m *Model) record(want Want, noPruning bool, adapters []*Adapter) (*engine.Program, error) {
	if want.Dense && want.Pooling == 0 {
		want.Pooling = m.Pooling
	}
	lockorder.None("recording a program")
	if err := m.check(want); err != nil {
		return nil, err
	}
	keep := want.keep()
	if noPruning {
		keep = engine.PoolMean
	}
	caps := m.caps
	if want.MaxSim {
		caps.MaxQueryRows = max(minQueryRows, caps.MaxLen)
	}
	r := m.device.Record(caps)
	p := pass{keep: keep, attendKept: want.AttendKept, adapters: adapters}
	x := m.encoder.forward(r, p)
	o := outputs{Model: m, r: r, want: want, pass: p, x: x}
	for _, out := range want.Outputs() {
		o.declare(out)
	}
	return r.End()
}

// outputs declares the outputs of a program that is being recorded.
type outputs struct {
	*Model
	r      *engine.Recorder
	want   Want
	pass   pass
	x      engine.Value // the encoder's last hidden state
	tokens engine.Value // the tokens' vectors; see vectors
	have   bool         // tokens is recorded
}

// declare records the layers of an output, and the output.
func (o *outputs) declare(out Output) {
	r, h := o.r, o.heads
	switch out {
	case OutDense:
		r.OutputRows(applyAll(r, r.Pool(o.x, o.want.Pooling), o.dense))
	case OutSparse:
		r.OutputSparse(r.Splade(h.masked.beforeDecoder(r, o.pass, o.x), h.masked.decoder, h.masked.bias), h.sparse)
	case OutTokenWeights:
		r.OutputValues(h.weight.apply(r, o.x))
	case OutMulti:
		r.OutputTokenRows(o.vectors())
	case OutMaxSim:
		r.OutputValues(r.MaxSim(o.vectors(), true))
	case OutLogits:
		z := r.Pool(o.x, engine.PoolCLS)
		for _, l := range h.classifier {
			z = o.pass.layer(r, z, l)
		}
		r.OutputValues(z)
	case OutTokenLogits:
		r.OutputValues(o.pass.layer(r, o.x, *h.tagger))
	case OutMuvera:
		o.foldDense(r, o.want, o.vectors())
	case OutSMVE:
		o.foldSparse(r, o.want, o.vectors())
	}
}

// vectors returns the tokens' vectors. It records them for the first output that reads them.
func (o *outputs) vectors() engine.Value {
	if !o.have {
		o.tokens, o.have = o.x, true
		if !o.want.AttendKept { // with AttendKept, Keep chooses what tokens attend to, and all rows are read
			o.tokens = o.r.KeepRows(o.x)
		}
		o.tokens = applyAll(o.r, o.tokens, o.heads.vectors)
	}
	return o.tokens
}

// check refuses outputs for which the model has no head.
func (m *Model) check(want Want) error {
	missing := func(what string) error {
		return refuse(configFile, "architectures", "the model, loaded for the task %s, gives no %s", m.Task, what)
	}
	switch h := m.heads; {
	case want.Sparse && h.masked == nil:
		return missing("SPLADE weights")
	case want.TokenWeights && h.weight == nil:
		return missing("token weights")
	case want.readsVectors() && h.vectors == nil:
		return missing("token vectors")
	case want.Logits && h.classifier == nil:
		return missing("class of a text")
	case want.TokenLogits && h.tagger == nil:
		return missing("classes of tokens")
	}
	return nil
}

// readsVectors reports whether the tokens' vectors are computed.
func (w Want) readsVectors() bool {
	return w.Multi || w.MaxSim || w.Folds()
}

// keep returns the one row of each sequence that is read of the last hidden state, or PoolMean if
// more rows are read.
func (w Want) keep() engine.Pooling {
	switch all := w.Sparse || w.TokenWeights || w.TokenLogits || w.readsVectors(); {
	case all || w.Dense && w.Logits && w.Pooling != engine.PoolCLS:
		return engine.PoolMean
	case w.Logits:
		return engine.PoolCLS
	}
	return w.Pooling
}
