package task

import (
	"cmp"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The family of late-interaction models: one vector per token, and scores by MaxSim.
func init() {
	families[catalog.FamilyColBERT] = &family{
		task: arch.ColBERT, encode: &vectors{begin: markTexts}, score: lateInteraction,
	}
}

// markTexts makes an encoding read texts with their markers.
func markTexts(e *encoding) {
	k := markersOf(e.use.Model, e.model)
	e.reader.prefix = k.before(e.query)
	e.reader.limit = k.limit(e.reader.limit, e.query, e.options.QueryMaxLength)
	e.lay = func(ids []int32) ([]int32, []uint8, int) { return k.mark(ids, e.query, e.reader.limit) }
	e.attendKept = e.query && k.masksExpansion()
	if e.attendKept && k.trims() {
		e.trim = k.trim
	}
}

// markers says how a late-interaction model reads texts (ColBERT, arXiv:2004.12832). A marker
// behind [CLS] tells queries from documents. Queries are filled up with [MASK]. Documents lose the
// vectors of their punctuation. Immutable.
type markers struct {
	query, doc         int32  // token ids; -1: the marker is no token
	queryText, docText string // put before a text whose marker is no token
	queryLength        int    // tokens of a query, at most
	docLength          int    // tokens of a document, at most; 0: the model's limit
	expand, attend     bool   // fill queries up; let other tokens attend to the filling
	mask               int32
	skip               map[int32]struct{} // ids whose vectors are left out of documents
	skipSpecial        bool
	special            tokenizer.SpecialIDs
	frame              int // special tokens of a text
}

// defaultQueryLength is ColBERT's default query_maxlen.
const defaultQueryLength = 32

// asciiPunctuation is Python's string.punctuation, which ColBERT skips.
const asciiPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// marking holds the options that markers depend on. Entries with equal options share their markers,
// even after the catalog was read again.
type marking struct {
	queryLength, docLength      int
	queryPrefix, docPrefix      string
	expand, attend, skipSpecial bool
	skip                        string // the tokens that documents lose, each with a NUL behind it
}

// markingOf returns the options of an entry. What it leaves out is as the model's own file says,
// else the reference's default.
func markingOf(o *catalog.LoadtimeOptions, file *arch.Late) marking {
	m := marking{
		queryLength: cmp.Or(o.QueryMaxLength, int(file.QueryLength)),
		docLength:   cmp.Or(o.DocMaxLength, int(file.DocumentLength)),
		queryPrefix: cmp.Or(o.QueryPrefix, orEmpty(file.QueryPrefix)),
		docPrefix:   cmp.Or(o.DocPrefix, orEmpty(file.DocumentPrefix)),
		expand:      isTrue(o.QueryExpansion, isTrue(file.Expand, true)),
		attend:      isTrue(o.AttendToExpansion, isTrue(file.Attend, false)),
		skipSpecial: isTrue(o.SkipSpecialTokens, !file.Given()),
	}
	if !isTrue(o.SkipPunctuation, true) {
		return m
	}
	words := file.Skip
	if words == nil {
		words = strings.Split(asciiPunctuation, "")
	}
	for _, word := range words {
		m.skip += word + "\x00"
	}
	return m
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// markersOf returns the markers of entry m. They are made once for each marking.
func markersOf(l *model.Model, m *catalog.Resolved) *markers {
	by := markingOf(m.Loadtime, &l.Weights().Late)
	return l.Keep(by, func() any { return newMarkers(by, l.Tokenizer()) }).(*markers)
}

func newMarkers(by marking, t *tokenizer.Tokenizer) *markers {
	k := &markers{
		queryLength: by.queryLength,
		docLength:   by.docLength,
		expand:      by.expand,
		attend:      by.attend,
		mask:        t.Special().MASK,
		skipSpecial: by.skipSpecial,
		special:     t.Special(),
		frame:       t.CountSpecial(false),
	}
	if k.queryLength == 0 {
		k.queryLength = defaultQueryLength
	}
	k.expand = k.expand && k.mask >= 0
	k.query, k.queryText = marker(by.queryPrefix, t)
	k.doc, k.docText = marker(by.docPrefix, t)
	k.skip = make(map[int32]struct{})
	for _, word := range strings.Split(by.skip, "\x00") {
		if id, ok := t.TokenToID(word); ok && word != "" {
			k.skip[id] = struct{}{}
		}
	}
	return k
}

func isTrue(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// marker returns the id of a prefix that is a single token, or -1 and the text to put before
// others.
func marker(prefix string, t *tokenizer.Tokenizer) (id int32, text string) {
	for _, spelled := range []string{prefix, strings.TrimSpace(prefix)} {
		if id, ok := t.TokenToID(spelled); ok && spelled != "" {
			return id, ""
		}
	}
	return -1, prefix
}

// limit returns how many tokens the tokenizer may keep of a text, at most longest. It leaves room
// for the marker, which mark adds, and is at least the number of special tokens. queryLength, if
// positive, lowers the limit of queries.
func (k *markers) limit(longest int, query bool, queryLength int) int {
	id := k.doc
	if query {
		id = k.query
		length := k.queryLength
		if queryLength > 0 {
			length = min(length, queryLength)
		}
		longest = min(longest, length)
	} else if k.docLength > 0 {
		longest = min(longest, k.docLength)
	}
	if id >= 0 {
		longest--
	}
	return max(longest, k.frame)
}

// before returns the prefix of a text whose marker is no token.
func (k *markers) before(query bool) string {
	if query {
		return k.queryText
	}
	return k.docText
}

// masksExpansion reports whether queries are filled up with tokens that no token attends to.
func (k *markers) masksExpansion() bool { return k.expand && !k.attend }

// dropped reports whether a token's row is left out of the result.
func (k *markers) dropped(id int32, query bool) bool {
	if k.skipSpecial && (id == k.special.CLS || id == k.special.SEP || id == k.special.PAD) {
		return true
	}
	_, skipped := k.skip[id]
	return skipped && !query
}

// trims reports whether the host must remove rows from a query's token matrix. With masked
// expansion the device returns all rows, those of special tokens too, because the query's keep
// marks are its attention mask.
func (k *markers) trims() bool { return k.skipSpecial && k.masksExpansion() }

// trim removes the rows of dropped tokens from a query's matrix. bytes is the size of a row.
func (k *markers) trim(data []byte, bytes int, ids []int32) []byte {
	out := make([]byte, 0, len(data))
	for i, id := range ids {
		if !k.dropped(id, true) {
			out = append(out, data[i*bytes:(i+1)*bytes]...)
		}
	}
	return out
}

// mark returns the tokens that the model reads for a text, which of them the batch keeps (nil:
// all), and how many rows the device's result has. limit is the value that limit returned. If
// masksExpansion, a query's keep says which tokens are attended to, and all its rows are returned.
func (k *markers) mark(ids []int32, query bool, limit int) (marked []int32, keep []uint8, rows int) {
	id := k.doc
	if query {
		id = k.query
	}
	length := len(ids)
	if query && k.expand {
		length = limit
	}
	marked = make([]int32, 0, length+1)
	if id >= 0 && len(ids) > 0 {
		marked = append(marked, ids[0], id)
		ids = ids[1:]
		length++
	}
	marked = append(marked, ids...)
	words := len(marked)
	for query && k.expand && len(marked) < length {
		marked = append(marked, k.mask)
	}
	keep = make([]uint8, len(marked))
	if query && k.masksExpansion() {
		for i := range words {
			keep[i] = 1
		}
		return marked, keep, len(marked)
	}
	for i, id := range marked {
		if !k.dropped(id, query) {
			keep[i] = 1
			rows++
		}
	}
	if rows == len(marked) {
		keep = nil
	}
	return marked, keep, rows
}

// lateInteraction scores with ColBERT's MaxSim. It encodes the query's token vectors first and then
// compares every text with them.
func lateInteraction(r *run) error {
	k := markersOf(r.use.Model, r.model)
	query, err := r.encodeQuery(outputs{multi: true})
	if err != nil {
		return err
	}
	v, err := r.variantFor(arch.Want{Give: arch.Give(arch.OutMaxSim)})
	if err != nil {
		return err
	}
	q, err := r.queryRows(query.Multi[0], v)
	if err != nil {
		return err
	}
	r.reader.prefix, r.reader.limit = k.before(false), k.limit(r.reader.limit, false, 0)
	sizes := newSizes(v, forms{})
	special := r.use.Tokenizer().CountSpecial(false)
	return r.job(v, len(r.req.Inputs), true, func(first, end int) ([]batch.Item, error) {
		b, err := r.reader.read(r.req.Inputs[first:end], first)
		if err != nil {
			return nil, err
		}
		items := make([]batch.Item, end-first)
		for i := range items {
			ids, keep, _ := k.mark(b.Text(i), false, r.reader.limit)
			items[i] = batch.Item{
				Inputs: batch.Inputs{IDs: ids, Keep: keep}, Query: q, Specs: sizes.of(len(ids), 0), Index: i,
			}
			r.special += special
		}
		return items, nil
	}, func(i int, out *batch.Result) error {
		r.result.Scores[i] = float64(floats(out[0])[0])
		return nil
	})
}
