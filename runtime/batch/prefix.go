package batch

// Prefix holds the tokens with which several items begin, such as a query that a model judges many
// texts for. The items of a batch that have it, and one adapter, share what the device computes of
// it. A result has the same bits shared or not.
type Prefix struct {
	IDs []int32
}

// The rule of sharing. Items of a batch share a prefix if that spares the device at least minSpared
// tokens. A batch of fewer is not worth another pass over the weights, and its items run with the
// prefix as their own tokens. MaxPrefixes is the largest number of prefixes that a batch shares.
const (
	minSpared   = 128
	MaxPrefixes = 64
)

// sharedBy reports whether n items of a batch share a prefix of that many tokens.
func sharedBy(n, tokens int) bool { return (n-1)*tokens >= minSpared }

// prefixRuns returns how many times the device computes a prefix of that many tokens that n items
// have.
func prefixRuns(n, tokens int) int {
	if sharedBy(n, tokens) {
		return 1
	}
	return n
}

// prefixKey is what items have in common that may share a prefix: keys and values depend on the
// adapter.
type prefixKey struct {
	prefix  *Prefix
	adapter Adapter
}

// prefixSet counts the items of a batch by their prefixes, in order of arrival. The items of a
// request share one, so there are few.
type prefixSet struct {
	all    []prefixUse
	shared int // prefixes that items share
	rows   int // tokens of these, each once
}

type prefixUse struct {
	prefixKey
	items int
}

// find returns the index of the item's prefix, or -1.
func (s *prefixSet) find(it *Item) int {
	key := prefixKey{it.Prefix, it.Adapter}
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i].prefixKey == key {
			return i
		}
	}
	return -1
}

// with returns how many times more the device computes the item's prefix if the item were added,
// below 0 where it is then shared, and whether maxRows rows and MaxPrefixes prefixes are enough for
// those that items share.
func (s *prefixSet) with(it *Item, maxRows int) (runs int, fits bool) {
	if it.Prefix == nil {
		return 0, true
	}
	n, have := len(it.Prefix.IDs), 0
	if i := s.find(it); i >= 0 {
		have = s.all[i].items
	}
	becomes := !sharedBy(have, n) && sharedBy(have+1, n)
	return prefixRuns(have+1, n) - prefixRuns(have, n),
		!becomes || s.rows+n <= maxRows && s.shared < MaxPrefixes
}

func (s *prefixSet) add(it *Item) {
	if it.Prefix == nil {
		return
	}
	i := s.find(it)
	if i < 0 {
		i = len(s.all)
		s.all = append(s.all, prefixUse{prefixKey: prefixKey{it.Prefix, it.Adapter}})
	}
	n, have := len(it.Prefix.IDs), s.all[i].items
	if s.all[i].items++; !sharedBy(have, n) && sharedBy(have+1, n) {
		s.shared++
		s.rows += n
	}
}

// PackedPrefixes holds the prefixes that items of a batch share, end to end, each once.
type PackedPrefixes struct {
	IDs       []int32
	CuSeqlens []int32   // [prefixes+1], from 0
	Adapters  []Adapter // [prefixes], or nil: none has one

	// [B] where in IDs each item's prefix begins, and its tokens; 0 tokens: the item has none
	First, Tokens []int32
}

// packPrefixes returns the prefixes that items share, nil without any, and the items with those
// that they do not share as their own tokens. items are a batch or a part of one, and whole has the
// prefixes of the batch. A part shares what the batch does, so that it has no more tokens than the
// batch; an item alone shares nothing.
func packPrefixes(items []*Item, whole *prefixSet) (*PackedPrefixes, []*Item) {
	if len(whole.all) == 0 {
		return nil, items
	}
	p := &PackedPrefixes{
		CuSeqlens: []int32{0}, First: make([]int32, len(items)), Tokens: make([]int32, len(items)),
	}
	starts := make([]int32, len(whole.all)) // in p.IDs, behind one; 0: not packed
	packed := make([]*Item, len(items))
	for i, it := range items {
		packed[i] = it
		if it.Prefix == nil {
			continue
		}
		of, n := whole.find(it), len(it.Prefix.IDs)
		if len(items) == 1 || !sharedBy(whole.all[of].items, n) {
			packed[i] = it.whole()
			continue
		}
		if starts[of] == 0 {
			starts[of] = int32(len(p.IDs)) + 1
			p.IDs = append(p.IDs, it.Prefix.IDs...)
			p.CuSeqlens = append(p.CuSeqlens, int32(len(p.IDs)))
			p.Adapters = append(p.Adapters, it.Adapter)
		}
		p.First[i], p.Tokens[i] = starts[of]-1, int32(n)
	}
	if len(p.IDs) == 0 {
		return nil, packed
	}
	if !hasAny(p.Adapters) {
		p.Adapters = nil
	}
	return p, packed
}

// prefixesOf returns the prefixes of a batch.
func prefixesOf(items []*Item) prefixSet {
	var set prefixSet
	for _, it := range items {
		set.add(it)
	}
	return set
}

func hasAny(adapters []Adapter) bool {
	for _, a := range adapters {
		if a != nil {
			return true
		}
	}
	return false
}

// whole returns the item with its prefix as its own tokens.
func (it *Item) whole() *Item {
	w := *it
	w.Prefix = nil
	w.IDs = append(append(make([]int32, 0, it.Tokens()), it.Prefix.IDs...), it.IDs...)
	return &w
}

// prefixed returns the tokens of the item's prefix.
func (it *Item) prefixed() int { return it.Tokens() - len(it.IDs) }

// Tokens returns the tokens of the item, its prefix included.
func (it *Item) Tokens() int {
	if it.Prefix == nil {
		return len(it.IDs)
	}
	return len(it.Prefix.IDs) + len(it.IDs)
}
