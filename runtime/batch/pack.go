package batch

// Packed is a batch in the form that the device takes: sequences end to end, without padding.
type Packed struct {
	Inputs            // [T] each
	CuSeqlens []int32 // [B+1], from 0
	// [B+1] where each sequence's words, markers and spans begin, from 0; nil: none has any
	CuWords, CuMarkers, CuSpans []int32
	Adapters                    []Adapter // [B], or nil: none has one
	Queries                     []float32 // [Q, C] the rows of the items' queries, each query once
	// [number of queries + 1] the row of Queries at which each query begins, from 0; nil: no
	// queries
	CuQueries []int32
	Partner   []int32 // [B] the query of each item, -1: none; nil: none has one
	Outputs   []PackedOutput

	// NonFinite has shape [B] and is set by the Runner. It is not 0 for an item whose results hold
	// a NaN or an infinity, or were computed from one. nil: no item.
	NonFinite []int32

	Prefixes *PackedPrefixes // nil: none is shared
}

// PackedOutput describes where each item's result lies in one output.
type PackedOutput struct {
	Specs   []Spec  // [B]
	Offsets []int64 // [B], in bytes
	Bytes   int64   // size of the whole output
}

// resultAlign keeps every result's elements aligned for the device's stores.
const resultAlign = 16

// pack lays items end to end, which are a batch with the prefixes of whole, or a part of it. The
// items belong to one program, so all have as many specs as the first.
func pack(items []*Item, whole *prefixSet) *Packed {
	var adapters, queries bool
	prefixes, items := packPrefixes(items, whole)
	p := &Packed{
		Prefixes:  prefixes,
		CuSeqlens: make([]int32, 1, len(items)+1),
		Outputs:   make([]PackedOutput, len(items[0].Specs)),
	}
	for i, it := range items {
		p.CuSeqlens = append(p.CuSeqlens, p.CuSeqlens[i]+int32(len(it.IDs)))
		adapters, queries = adapters || it.Adapter != nil, queries || it.Query != nil
	}
	p.Inputs = packInputs(items, p.CuSeqlens)
	p.CuWords = cuRows(items, func(in *Inputs) *Places { return &in.Words })
	p.CuMarkers = cuRows(items, func(in *Inputs) *Places { return &in.Markers })
	p.CuSpans = cuRows(items, func(in *Inputs) *Places { return &in.Spans })
	if adapters {
		p.Adapters = make([]Adapter, len(items))
		for i, it := range items {
			p.Adapters[i] = it.Adapter
		}
	}
	if queries {
		p.packQueries(items)
	}
	for o := range p.Outputs {
		p.Outputs[o].lay(items, o)
	}
	return p
}

func (p *Packed) packQueries(items []*Item) {
	p.Partner, p.CuQueries = make([]int32, len(items)), []int32{0}
	var set querySet
	for i, it := range items {
		p.Partner[i] = -1
		if it.Query == nil {
			continue
		}
		at, known := set.find(it.Query)
		if !known {
			set.add(it.Query)
			p.Queries = append(p.Queries, it.Query.Rows...)
			p.CuQueries = append(p.CuQueries, p.CuQueries[at]+int32(it.Query.N))
		}
		p.Partner[i] = int32(at)
	}
}

// lay assigns each item's result its place in output o.
func (out *PackedOutput) lay(items []*Item, o int) {
	out.Specs, out.Offsets = make([]Spec, len(items)), make([]int64, len(items))
	for i, it := range items {
		s := it.Specs[o]
		out.Specs[i], out.Offsets[i] = s, out.Bytes
		out.Bytes = s.end(out.Bytes)
	}
}

// end returns the offset after a result that begins at from, where the next one begins.
func (s *Spec) end(from int64) int64 {
	if s.Values {
		return from + int64(s.Bytes)
	}
	return (from + int64(s.Bytes) + resultAlign - 1) / resultAlign * resultAlign
}

// outputSizes holds the size in bytes of each output of a batch.
type outputSizes [MaxOutputs]int64

// with returns the largest of the sizes if the item were added.
func (s *outputSizes) with(it *Item) (limit int64) {
	for o := range it.Specs {
		limit = max(limit, it.Specs[o].end(s[o]))
	}
	return limit
}

func (s *outputSizes) add(it *Item) {
	for o := range it.Specs {
		s[o] = it.Specs[o].end(s[o])
	}
}

// querySet holds the queries of a batch in order of arrival. The items of a request share one, so
// there are few.
type querySet struct {
	all  []*Query
	rows int
}

// find returns the index of q, or the index that it would get.
func (s *querySet) find(q *Query) (at int, known bool) {
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i] == q {
			return i, true
		}
	}
	return len(s.all), false
}

// with returns the rows of the set if q were added.
func (s *querySet) with(q *Query) int {
	if q == nil {
		return s.rows
	}
	if _, known := s.find(q); known {
		return s.rows
	}
	return s.rows + q.N
}

func (s *querySet) add(q *Query) {
	if q == nil {
		return
	}
	if _, known := s.find(q); !known {
		s.all = append(s.all, q)
		s.rows += q.N
	}
}
