package arch

import (
	"cmp"
	"fmt"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
)

// minQueryRows is the smallest room for query rows in a batch for MaxSim. 128 queries of ColBERT
// fit.
const minQueryRows = 4096

// Own returns the outputs of Program, the first that the model's task gives.
func (m *Model) Own() Want { return m.wants(m.Task.outputs[:1]) }

// All returns all outputs that the model's task gives in one pass.
func (m *Model) All() Want { return m.wants(m.Task.outputs) }

// wants asks for outputs with the model's own pooling.
func (m *Model) wants(outputs []Output) Want {
	want := Want{Give: Give(outputs...)}
	if want.Give.Has(OutDense) {
		want.Pooling = m.Pooling
	}
	return want
}

// Gives reports whether programs of the model can have the output.
func (m *Model) Gives(o Output) bool {
	_, ok := m.given[o]
	return ok
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
	return m.record(Want{Give: Give(OutDense), Pooling: p}, false, nil)
}

func (m *Model) record(want Want, noPruning bool, adapters []*Adapter) (*engine.Program, error) {
	if want.Give.Has(OutDense) && want.Pooling == 0 {
		want.Pooling = m.Pooling
	}
	if err := m.checkPooling(want); err != nil {
		return nil, err
	}
	lockorder.AssertNoneHeld("recording a program")
	outputs := want.Outputs()
	if want.Long && m.ShortLen == m.MaxSeqLen {
		return nil, fmt.Errorf("the model takes %d tokens: it has no program for longer texts", m.MaxSeqLen)
	}
	keep, caps := engine.Pooling(0), m.Caps(want.Long)
	states, precise, reads := false, false, m.encoder
	for _, o := range outputs {
		g, ok := m.given[o]
		if !ok {
			return nil, refuse(configFile, "architectures",
				"the model, loaded for the task %s, does not give the output %s", m.Task, o)
		}
		keep = keepOne(keep, cmp.Or(g.rows, m.denseRows(want.Pooling)))
		if g.queries {
			caps.MaxQueryRows = max(minQueryRows, int64(m.MaxSeqLen))
		}
		if g.labelled {
			caps.MaxQueryRows = MaxGivenLabels
		}
		if g.tower != nil {
			reads, caps.MaxWords, caps.MaxMarkers = g.tower, 0, 0
			caps.MaxLen = min(caps.MaxLen, reads.shape().positions)
		}
		if g.lists {
			caps.MaxWords, caps.MaxMarkers = caps.MaxTokens, caps.MaxTokens
		}
		if g.spans {
			caps.MaxSpans = batchCandidates
		}
		states, precise = states || g.states, precise || g.precise
	}
	if noPruning {
		keep = engine.PoolMean
	}
	behind := m.SharesPrefixes(want)
	if behind {
		caps.MaxStateRows = m.stateRows()
	}
	if want.AttendKept && m.encoder.shape().biased {
		return nil, refuse(configFile, "position_embedding_type",
			"biases attention by distance, and kept keys have no places: attend_to_expansion_tokens cannot be false for %s",
			m.Arch)
	}
	r := &recording{Recorder: m.device.Record(caps), model: m, want: want,
		pass: pass{keep: keep, attendKept: want.AttendKept, behind: behind, adapters: adapters}}
	if states {
		r.pass.observe = func(_ int, x engine.Value) { r.states = append(r.states, r.precise(x)) }
	}
	r.x = reads.forward(r.Recorder, r.pass)
	if precise {
		r.x = r.precise(r.x)
	}
	if states { // a net that normalises first does so once more behind its last block
		r.states[len(r.states)-1] = r.x
	}
	for _, o := range outputs {
		r.NameOutput(string(o))
		m.given[o].record(r)
	}
	return r.End()
}

// keepOne returns the one row of each sequence that an output reads, rows, if the outputs before it
// read no other; PoolMean stands for more rows, and 0 for none.
func keepOne(before, rows engine.Pooling) engine.Pooling {
	if rows != engine.PoolCLS && rows != engine.PoolLast || before != 0 && before != rows {
		return engine.PoolMean
	}
	return rows
}

// recording is a program whose outputs are being recorded.
type recording struct {
	*engine.Recorder
	model *Model
	want  Want
	pass  pass
	x     engine.Value // the encoder's last hidden state
	// the states after the embeddings and behind each block, the last of them x, where an output
	// reads them (given.states)
	states []engine.Value
	made   map[any]engine.Value
}

// precise makes x, the result of the operation recorded last, a stream.
func (r *recording) precise(x engine.Value) engine.Value {
	if r.Streams(x) {
		return x
	}
	return r.Stream(x)
}

// layer records a layer with the adapters that change it.
func (r *recording) layer(x engine.Value, l layer) engine.Value {
	return r.pass.layer(r.Recorder, x, l)
}

// once returns the value of key. make records it for the first output that asks.
func (r *recording) once(key any, make func() engine.Value) engine.Value {
	v, ok := r.made[key]
	if !ok {
		if v = make(); r.made == nil {
			r.made = map[any]engine.Value{}
		}
		r.made[key] = v
	}
	return v
}
