package task

import (
	"cmp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/model"
)

// encode answers the request's inputs with vectors.
func (r *run) encode() error {
	e, err := newEncoding(r)
	if err != nil {
		return err
	}
	r.prepared()
	return e.answer()
}

// encoding is a request for vectors that runs on a loaded model. Owned by one goroutine.
type encoding struct {
	*run
	n       int
	variant *model.Variant // nil when no forward pass is needed
	forms   forms
	sizes   sizes

	// lay returns the token ids that the model reads for a text, which of their rows the batch
	// keeps (nil: all), and how many rows the result has.
	lay func(ids []int32) (read []int32, keep []uint8, rows int)
	// trim, if not nil, removes rows from a token matrix. bytes is the size of a row.
	trim       func(data []byte, bytes int, ids []int32) []byte
	attendKept bool // tokens attend only to those that the batch keeps

	kept  [][]int32 // ids that the model reads for each text; nil unless results are read by them
	whole int       // bytes per item that were held before any text was read
	short []int     // texts whose sparse row did not fit
	room  int       // columns that the largest of them needs

	dropped []int32 // columns that sparse rows do not have
}

func newEncoding(r *run) (*encoding, error) {
	e := &encoding{run: r, n: len(r.req.Inputs)}
	e.lay = func(ids []int32) ([]int32, []uint8, int) { return ids, nil, len(ids) }
	how := r.family.encode
	if how.begin != nil {
		how.begin(e)
	}
	e.dropSpecialTokens()
	if err := e.settle(); err != nil {
		return nil, err
	}
	if err := e.hold(int64(e.n)*int64(vectorBytes+e.whole), e.n); err != nil {
		return nil, err
	}
	e.makeRoom()
	if how.table != nil && how.table(e) {
		return e, nil
	}
	want := e.want()
	if e.trim != nil && want.Folds() {
		return nil, errs.Invalidf("options",
			"Model '%s' cannot fold queries that are filled up and lose their special tokens; "+
				"set the load-time option skip_special_tokens: false, query_expansion: false or attend_to_expansion_tokens: true",
			e.model.ID)
	}
	if want.Give.Has(arch.OutTokenWeights) || e.trim != nil {
		e.kept = make([][]int32, e.n)
	}
	var err error
	if e.variant, err = e.variantFor(want); err == nil {
		e.sizes = newSizes(e.variant, e.forms)
	}
	return e, err
}

// want returns the outputs that the request needs of a program.
func (e *encoding) want() arch.Want {
	var folded folding
	if e.fold != nil {
		folded = *e.fold
	}
	want := arch.Want{AttendKept: e.attendKept}
	var give []arch.Output
	if e.outputs.dense && folded.muvera == nil {
		give, want.Pooling = append(give, arch.OutDense), poolings[e.options.Pooling]
	}
	if e.outputs.sparse && folded.smve == nil {
		give = append(give, cmp.Or(e.family.encode.sparse, arch.OutSparse))
	}
	if e.outputs.multi {
		give = append(give, arch.OutMulti)
	}
	want.Give = arch.Give(give...)
	folded.ask(&want, e.query)
	return want
}

var poolings = map[catalog.Pooling]engine.Pooling{
	catalog.PoolingCLS: engine.PoolCLS, catalog.PoolingMean: engine.PoolMean,
	catalog.PoolingLast: engine.PoolLast,
}

func (e *encoding) answer() error {
	if e.variant == nil {
		return e.lookUp()
	}
	if err := e.job(e.variant, e.n, false, e.items, e.take); err != nil {
		return err
	}
	for len(e.short) > 0 { // run them again with the room that they turned out to need
		again := e.short
		e.short = nil
		e.variant.Grow(e.room)
		e.again = again
		pick := func(first, end int) ([]batch.Item, error) { return e.pick(again[first:end]) }
		if err := e.job(e.variant, len(again), true, pick,
			func(i int, r *batch.Result) error { return e.take(again[i], r) }); err != nil {
			return err
		}
	}
	return nil
}

// ids returns the token ids of inputs [first, end).
func (e *encoding) ids(first, end int) ([][]int32, error) {
	out := make([][]int32, end-first)
	if e.req.Inputs[0].Tokens() != nil {
		for i := range out {
			var err error
			if out[i], err = e.reader.check(e.req.Inputs[first+i].Tokens(), first+i); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	b, err := e.reader.read(e.req.Inputs[first:end], first)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = b.Text(i)
	}
	return out, nil
}

// items makes the batch items of texts [first, end) and holds the bytes that their results need
// beyond those held before.
func (e *encoding) items(first, end int) ([]batch.Item, error) {
	ids, err := e.ids(first, end)
	if err != nil {
		return nil, err
	}
	items, more := make([]batch.Item, len(ids)), int64(0)
	for i := range items {
		items[i] = e.item(ids[i], first, i)
		for j := range items[i].Specs {
			more += int64(items[i].Specs[j].Bytes)
		}
		if e.variant.Want.Give.Has(arch.OutTokenWeights) {
			more += 8 * int64(len(items[i].IDs)) // a column and a weight of the sparse row made of them
		}
		more -= int64(e.whole)
	}
	if more > 0 {
		return items, e.hold(more, end)
	}
	return items, nil
}

// pick makes the batch items of some texts again, without counting their tokens twice.
func (e *encoding) pick(numbers []int) ([]batch.Item, error) {
	counted := e.reader.tokens
	defer func() { e.reader.tokens = counted }()
	items := make([]batch.Item, len(numbers))
	for i, n := range numbers {
		one, err := e.items(n, n+1)
		if err != nil {
			return nil, err
		}
		items[i] = one[0]
		items[i].Index = i
	}
	return items, nil
}

// item makes the batch item of text first+index from its token ids.
func (e *encoding) item(ids []int32, first, index int) batch.Item {
	it := batch.Item{Index: index}
	var rows int
	it.IDs, it.Keep, rows = e.lay(ids)
	if e.kept != nil {
		e.kept[first+index] = it.IDs
	}
	it.Specs = e.sizes.of(len(it.IDs), rows)
	return it
}
