package arch

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/fold"
)

// folds holds the folding tables of a model's programs, packed on its device. Tables are made once
// for each configuration and stay with the model. Callers that want the same tables wait for one of
// them to make them; no lock is held meanwhile. Safe for concurrent use.
type folds struct {
	bytes atomic.Int64 // of all tables

	mu lockorder.Mutex[lockorder.Folds] // guards the field below
	// by configuration, fold.Muvera or fold.SMVE; nil before the first
	tables map[any]*foldTables
}

// foldTables holds one configuration's tables, which may still be in the making.
type foldTables struct {
	done   chan struct{} // closed when the fields below are set
	muvera engine.Muvera
	smve   engine.SMVE
	packer *packer // owns the weights
	err    error
}

// get returns the tables of a configuration and makes them if needed. A failure is forgotten,
// because there may be enough memory later.
func (f *folds) get(config any, create func(*foldTables)) (m *foldTables, err error) {
	f.mu.Lock()
	if m = f.tables[config]; m != nil {
		f.mu.Unlock()
		<-m.done
		return m, m.err
	}
	m = &foldTables{done: make(chan struct{})}
	if f.tables == nil {
		f.tables = make(map[any]*foldTables)
	}
	f.tables[config] = m
	f.mu.Unlock()

	lockorder.AssertNoneHeld("making tables")
	made := false
	defer func() {
		switch {
		case !made:
			m.err = errNotMade
		case m.err == nil:
			m.err = m.packer.err
		}
		if m.err != nil {
			if m.packer != nil {
				m.packer.close()
			}
			f.mu.Lock()
			delete(f.tables, config)
			f.mu.Unlock()
		} else {
			f.bytes.Add(m.packer.bytes)
		}
		err = m.err
		close(m.done)
	}()
	create(m)
	made = true
	return m, nil // or the error of the tables
}

// errNotMade is the error of those who waited for tables whose making ended in a panic, which a
// server survives.
var errNotMade = errors.New("folding tables were not made to the end")

// close frees the tables. No other call may make or use them.
func (f *folds) close() {
	for _, m := range f.tables {
		m.packer.close()
	}
	f.tables = nil
}

// foldDense records the dense row that the vectors of a text's tokens are folded into.
func (r *recording) foldDense(tokens engine.Value) {
	m, f := r.model, r.want.Muvera
	if tables := r.tables(f, func(t *foldTables) { m.makeMuvera(t, f) }); tables != nil {
		fold := tables.muvera
		fold.Query = r.want.FoldQuery
		r.OutputMuvera(tokens, fold)
	}
}

// foldSparse records the sparse row that the vectors of a text's tokens are folded into.
func (r *recording) foldSparse(tokens engine.Value) {
	m, f := r.model, r.want.SMVE
	if tables := r.tables(f, func(t *foldTables) { m.makeSMVE(t, f) }); tables != nil {
		fold := tables.smve
		fold.Query = r.want.FoldQuery
		r.OutputSMVE(tokens, fold)
	}
}

// tables returns the model's tables of a configuration, or nil after an error, which the recording
// then has.
func (r *recording) tables(config any, create func(*foldTables)) *foldTables {
	tables, err := r.model.folds.get(config, create)
	if err != nil {
		r.Fail(err)
		return nil
	}
	return tables
}

// makeMuvera packs the tables of an encoding.
func (m *Model) makeMuvera(to *foldTables, f fold.Muvera) {
	to.packer = &packer{dev: m.device}
	tables, err := f.Tables(m.TokenDim)
	if err != nil {
		to.err = fmt.Errorf("token vectors of %d columns: %w", m.TokenDim, err)
		return
	}
	out := &to.muvera
	*out = engine.Muvera{
		Repetitions:  int32(f.Repetitions),
		SimHashBits:  int32(f.Bits),
		Projected:    int32(tables.Projected),
		FinalDims:    int32(tables.Final),
		FillEmpty:    f.FillEmpty,
		CenterTokens: f.CenterTokens,
		Normalize:    true,
	}
	out.SimHash = to.packer.data(int64(f.Bits), engine.F32, littleEndian(tables.Simhash))
	if tables.AMS != nil {
		out.AMS = to.packer.data(int64(m.TokenDim), engine.I32, littleEndian(tables.AMS))
	}
	if tables.Sketch != nil {
		to.err = m.makeSketch(to.packer, out, tables.Sketch)
	}
}

// makeSketch packs a sketch in the form that the device reads.
func (m *Model) makeSketch(to *packer, out *engine.Muvera, sketch []int32) error {
	info, err := m.device.Info()
	if err != nil {
		return err
	}
	if info.Kind != engine.CUDA {
		out.Sketch = to.data(1, engine.I32, littleEndian(sketch))
		return nil
	}
	output, source, err := engine.OrderSketch(sketch, int(out.Repetitions), len(sketch)/int(out.Repetitions),
		int(out.FinalDims))
	if err != nil {
		return err
	}
	out.SketchOutput = to.data(1, engine.I32, littleEndian(output))
	out.SketchSource = to.data(1, engine.I32, littleEndian(source))
	return nil
}

// makeSMVE packs the anchors of an encoding.
func (m *Model) makeSMVE(to *foldTables, f fold.SMVE) {
	to.packer = &packer{dev: m.device}
	tables, err := f.Tables(m.TokenDim)
	if err != nil {
		to.err = fmt.Errorf("token vectors of %d columns: %w", m.TokenDim, err)
		return
	}
	to.smve = engine.SMVE{
		Repetitions: int32(f.Repetitions),
		Width:       int32(f.Width),
		Top:         int32(f.Top),
		MaxNonzeros: int32(f.MaxNonzeros),
		Normalize:   true,
		Anchors:     to.packer.data(int64(m.TokenDim), engine.F32, littleEndian(tables.Anchors)),
	}
}

// data packs a table of k columns without changing its values or type.
func (p *packer) data(k int64, dtype engine.DType, bytes []byte) *engine.Weight {
	if p.err != nil {
		return nil
	}
	if p.sizing != nil {
		p.sizing.add(int64(len(bytes)), int64(len(bytes)))
		return nil
	}
	w, err := p.create(engine.WeightSpec{
		Kind:    engine.DataWeight,
		Compute: engine.ComputeF32,
		DType:   dtype,
		K:       k,
		Parts:   []engine.Part{{Data: bytes, Rows: int64(len(bytes)) / dtype.RowBytes(k)}},
	})
	p.fail(err)
	return w
}
