package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/spans"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/runtime/words"
)

// The family of GLiNER models, which find entities of the request's labels. A text is read in
// windows of words behind a prompt of the labels; what is found in its windows is put together.
func init() {
	families[catalog.FamilySpanExtractor] = &family{
		task: arch.Spans,
		extract: &extractor{run: extractSpans, ready: func(p *Prepared) error {
			_, err := askSpans(p)
			return err
		}},
	}
}

// finding is a request for spans on its way. Owned by one goroutine.
type finding struct {
	*run
	spanAsk
	how     *arch.GLiNER
	variant *model.Variant
	labels  []string // as the prompt has them

	given    *batch.Query // the rows of the labels of a model with a label tower; else nil
	prompt   []int32      // up to the words
	markers  []int32      // the places of the labels' rows in it
	sep      int32        // behind the words
	limits   words.Limits
	tokenize words.Tokenize
	room     chunkRoom

	waiting int64 // bytes of what windows found whose texts are not answered yet
	held    int64 // the most of them that room was asked for
}

// window is a window of an input.
type window struct {
	words.Window
	input int
	found []spans.Entity
	in    foundIn // of a request for relations
	room  int     // records that a second run has room for; 0: the first one's
}

// extractSpans answers a request.
func extractSpans(r *run) error {
	ask, err := askSpans(r.Prepared)
	if err != nil {
		return err
	}
	f := &finding{run: r, spanAsk: ask, how: r.use.Weights().GLiNER,
		room: chunkRoom{hold: r.hold, usual: usualFound}}
	if err := f.readRelations(); err != nil {
		return err
	}
	if err := f.readPrompt(); err != nil {
		return err
	}
	if f.variant, err = r.variantFor(arch.Want{Give: arch.Give(arch.OutSpans)}); err != nil {
		return err
	}
	for first := 0; first < len(r.req.Inputs); first += chunkTexts {
		if err := f.answer(first, min(first+chunkTexts, len(r.req.Inputs))); err != nil {
			return err
		}
	}
	return nil
}

// readPrompt makes the tokens before the words: the sequence's first one, each label behind a
// marker, and the separator. The labels keep the request's order, which the model reads.
func (f *finding) readPrompt() error {
	if f.how.Tower != nil {
		if err := f.readTower(); err != nil {
			return err
		}
		return f.readRoom()
	}
	if err := f.check(f.req.Labels, f.reserved()); err != nil {
		return err
	}
	f.labels = f.req.Labels
	t := f.use.Tokenizer()
	marker, _ := t.TokenToID(f.how.EntToken) // both are known since the model was loaded
	separator, _ := t.TokenToID(f.how.SepToken)
	f.readWords(t, append(f.relationMarker(), marker, separator)...)
	ids, ends, err := f.tokenize(f.labels, nil, nil)
	if err != nil {
		return err
	}
	special := t.Special()
	f.sep = special.SEP
	f.prompt, f.markers = appendLabels([]int32{special.CLS}, marker, f.how.EmbedEnt, ids, ends)
	f.prompt = append(f.prompt, separator)
	if err := f.relationPrompt(separator); err != nil {
		return err
	}
	if err := f.checkPrompt(len(f.prompt) - 1); err != nil {
		return err
	}
	return f.readRoom()
}

// readRoom reads how much of a text a window takes beside the prompt.
func (f *finding) readRoom() error {
	weights := f.use.Weights()
	f.limits = words.DefaultLimits(min(f.how.MaxLen, weights.ShortLen)) // as many words as rows, at most
	f.limits.MaxSubtokens = words.Budget(f.how.MaxLen, strings.HasPrefix(weights.Arch, "deberta"), 0)
	room := weights.MaxSeqLen - len(f.prompt) - 1
	if room < 1 {
		return errs.Invalidf(labelsField,
			"%s take %d tokens, and model '%s' reads %d at once: none are left for the text; give fewer or shorter labels",
			labelsField, len(f.prompt), f.model.ID, weights.MaxSeqLen)
	}
	f.limits.MaxSubtokens = min(f.limits.MaxSubtokens, room)
	return nil
}

// readWords sets how words are tokenized: each on its own, and none becomes a marker, whatever its
// characters are.
func (f *finding) readWords(t *tokenizer.Tokenizer, markers ...int32) {
	tokens := t.WordTokens(f.ctx, markers)
	f.tokenize = func(list []string, ids []int32, ends []int) ([]int32, []int, error) {
		start := time.Now()
		defer func() { f.reader.took += time.Since(start) }()
		return tokens(list, ids, ends)
	}
}

// answer finds the entities of inputs [first, end).
func (f *finding) answer(first, end int) error {
	f.waiting = 0 // those before them are answered
	var all []*window
	for i := first; i < end; i++ {
		list, err := f.windows(i)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	if err := f.find(all, first > 0); err != nil {
		return err
	}
	if f.related != nil {
		if err := f.relate(all); err != nil {
			return err
		}
	}
	for len(all) > 0 {
		i, n := all[0].input, 1
		for n < len(all) && all[n].input == i {
			n++
		}
		if err := f.put(i, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// windows splits an input's text, or answers the input with an error and returns none.
func (f *finding) windows(i int) ([]*window, error) {
	text := f.req.Inputs[i].Text
	if words.IsBlank(text) {
		return nil, f.reader.refuse(i, errs.Invalidf(f.reader.location(i),
			"Field '%s' is blank; a text with words is wanted", f.reader.location(i)))
	}
	list, err := words.Windows(text, f.limits, f.tokenize)
	var bound *words.BoundError
	switch {
	case errors.As(err, &bound):
		place := f.reader.location(i)
		return nil, f.reader.refuse(i, errs.TooLong(place, fmt.Sprintf("Field '%s': %s", place, bound)))
	case err != nil:
		return nil, f.reader.textError(err, i)
	}
	if !slices.ContainsFunc(list, func(w words.Window) bool { return len(w.IDs) > 0 }) {
		err := f.reader.refuse(i, f.reader.dropped(i))
		if err == nil {
			f.result.Found[i].Bare = true
		}
		return nil, err
	}
	out := make([]*window, len(list))
	for j, w := range list {
		out[j] = &window{Window: w, input: i}
		f.reader.tokens += w.Fresh()
		if w.First {
			f.reader.tokens += 2
		}
	}
	return out, nil
}

// find runs windows, those that found more than there was room for a second time.
func (f *finding) find(all []*window, admitted bool) error {
	for len(all) > 0 {
		var again []*window
		of := func(n int) int { return all[n].input }
		f.again = make([]int, len(all))
		for n := range all {
			f.again[n] = of(n)
		}
		err := f.job(f.variant, len(all), admitted, func(first, end int) ([]batch.Item, error) {
			items := make([]batch.Item, end-first)
			for n := range items {
				items[n] = f.item(all[first+n])
				items[n].Index = n
			}
			return items, f.room.above("options.threshold", f.decoding.Threshold, items, all[first].input)
		}, func(n int, out *batch.Result) error {
			w := all[n]
			more, err := f.decode(w, out[0])
			if more {
				again = append(again, w)
			}
			return err
		})
		f.again = nil
		if err != nil {
			return err
		}
		all, admitted = again, true
	}
	return nil
}

// item makes the batch item of a window.
func (f *finding) item(w *window) batch.Item {
	n := len(f.prompt)
	ids := make([]int32, 0, n+len(w.IDs)+1)
	ids = append(append(append(ids, f.prompt...), w.IDs...), f.sep)
	in := batch.Inputs{IDs: ids, Markers: batch.Places{First: f.markers}}
	places := make([]int32, 2*len(w.Words))
	in.Words.First, in.Words.Last = places[:len(w.Words)], places[len(w.Words):]
	from := 0
	for i, end := range w.Ends {
		in.Words.First[i], in.Words.Last[i] = int32(n+from), int32(n+end-1)
		if from == end { // the tokenizer dropped the word
			in.Words.First[i], in.Words.Last[i] = -1, -1
		}
		from = end
	}
	o := &f.variant.Outputs[0]
	spec := f.variant.FoundSpec(o, f.most(w), f.floor)
	if w.room > 0 {
		spec.Dims, spec.Bytes = int32(w.room), int(engine.FoundBytes(o, w.room))
	}
	// A batch has room for as many words as tokens, and words may be more where tokens are dropped.
	return batch.Item{Inputs: in, Cost: max(len(ids), len(w.Words)), Query: f.given,
		Specs: []batch.Spec{spec}}
}

// most returns the most records that a window may give.
func (f *finding) most(w *window) int {
	n := len(w.Words) * len(f.labels)
	if !f.how.TokenLevel {
		n *= min(f.how.MaxWidth, len(w.Words))
	}
	return max(1, n)
}

// decode reads what the device gave for a window, or notes the room that it needs and returns true.
func (f *finding) decode(w *window, out []byte) (again bool, err error) {
	o := &f.variant.Outputs[0]
	room := (len(out) - int(engine.FoundBytes(o, 0))) / (4 * o.Columns)
	var count int
	var found []spans.Span
	var between [][2]int // that relations are looked for between
	if f.how.TokenLevel {
		var list []engine.Pair
		if count, list = engine.Pairs(o, out, room); count <= room {
			pairs := make([]spans.Pair, len(list))
			for i, p := range list {
				pairs[i] = spans.Pair{Word: p.Word, Label: p.Label, Start: p.Logits[0], End: p.Logits[1],
					Inside: p.Logits[2]}
			}
			if found, err = spans.DecodePairs(pairs, len(w.Words), f.decoding); err != nil {
				return false, f.reader.refuse(w.input, errs.Invalid("options.threshold", err.Error()))
			}
			between = spans.PairCandidates(pairs, f.decoding.Threshold, arch.MaxCandidates)
		}
	} else {
		var list []engine.Span
		if count, list = engine.Spans(out, room); count <= room {
			candidates := make([]spans.Candidate, len(list))
			for i, s := range list {
				candidates[i] = spans.Candidate{Start: s.First, Width: s.Last - s.First, Label: s.Label,
					Logit: s.Logit}
			}
			found = spans.DecodeSpans(candidates, len(w.Words), f.decoding)
			between = spans.Candidates(candidates, len(w.Words), f.decoding.Threshold, arch.MaxCandidates)
		}
	}
	if count < 0 || count > f.most(w) {
		return false, fmt.Errorf("task: %d scores of %d words and %d labels",
			count, len(w.Words), len(f.labels))
	}
	if count > spans.MaxCandidates {
		return false, f.reader.refuse(w.input, errs.Invalid("options.threshold", fmt.Sprintf(
			"Field 'options.threshold' is %v, and %d spans of %d words and %d labels are above it, more than %d; raise it",
			f.decoding.Threshold, count, len(w.Words), len(f.labels), spans.MaxCandidates)))
	}
	if count > room {
		f.variant.Grow(count)
		w.room = count
		return true, nil
	}
	if err := f.wait(len(found), w.input); err != nil {
		return false, err
	}
	w.found = spans.Entities(found, w.Words)
	if f.related != nil {
		f.pairSpans(w, found, between)
	}
	return false, nil
}

// foundBytes are the bytes that an entity of a window takes until its text is answered: in the list
// of its window, in the order in which windows are put together, and under its place and label.
const foundBytes = 160

// wait counts n entities of a window of an input, and asks room for them, but for a few of each
// window. An answer holds those that are in it.
func (f *finding) wait(n, input int) error {
	f.waiting += max(0, int64(n)*foundBytes-usualFound)
	if f.waiting <= f.held {
		return nil
	}
	if err := f.hold(f.waiting-f.held, input); err != nil {
		return tooLow("options.threshold", f.decoding.Threshold, f.waiting, err)
	}
	f.held = f.waiting
	return nil
}

// put answers input i from what its windows found.
func (f *finding) put(i int, all []*window) error {
	answer := &f.result.Found[i]
	if answer.Err != nil {
		return nil
	}
	list, found := make([]words.Window, len(all)), make([][]spans.Entity, len(all))
	for n, w := range all {
		list[n], found[n] = w.Window, w.found
	}
	merged := spans.Merge(list, found, f.decoding)
	if f.adjacent {
		merged = spans.MergeAdjacent(merged)
	}
	if err := f.hold(int64(len(merged))*entryBytes, i+1); err != nil {
		return err
	}
	text := f.req.Inputs[i].Text
	at := bytesOf(text)
	for _, e := range merged {
		answer.Entities = append(answer.Entities, api.Entity{
			Text: text[at(e.Start):at(e.End)], Label: f.labels[e.Label], Score: float64(e.Score),
			Start: e.Start, End: e.End,
		})
	}
	return f.putRelations(i, all)
}

// bytesOf returns a function from code points of a text to bytes. Calls come nearly in order: one
// walks from where the one before ended, or from the beginning if that is nearer.
func bytesOf(text string) func(point int) int { return (&place{text: text}).to }

// place is a place in a text.
type place struct {
	text      string
	point, at int // in code points and bytes
	walked    int // code points, for tests
}

// to moves to a code point, at most to the end of the text, and returns where it is in bytes.
func (p *place) to(point int) int {
	if point < p.point-point {
		p.point, p.at = 0, 0
	}
	for ; p.point > point; p.walked++ {
		_, size := utf8.DecodeLastRuneInString(p.text[:p.at])
		p.point, p.at = p.point-1, p.at-size
	}
	for ; p.point < point && p.at < len(p.text); p.walked++ {
		_, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.point, p.at = p.point+1, p.at+size
	}
	return p.at
}
