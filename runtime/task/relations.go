package task

import (
	"fmt"
	"math"
	"slices"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/spans"
	"github.com/sie-engine/sie/runtime/words"
)

// Relations between the entities of a text. The names of the relations stand in the prompt behind
// the labels, and the windows run a second time, with the spans that they have found
// (docs/adr/0040).

const (
	relationsField    = "options.relation_labels"
	relationThreshold = "options.relation_threshold"
	// maxLinks bounds the scores of relations that are read of one window.
	maxLinks = 1 << 20
)

// Both packages have the number, because neither imports the other.
var _ = [1]int{}[words.MaxRelationCandidates-arch.MaxCandidates]

// relating is what a request for relations asks for.
type relating struct {
	labels    []string // as the prompt has them
	threshold float64  // of a relation
	adjacency float64  // of a pair
	floor     float32  // the logit above which the device gives scores
	markers   []int32  // the places of the relations' rows in the prompt
	variant   *model.Variant
}

// found is what a window found, in words.
type foundIn struct {
	spans      []spans.Span // decoded
	candidates [][2]int     // first and last words of the spans that relations are looked for between
	triples    []spans.Triple
	rooms      [2]int // records that another run has room for, by output; 0: the first one's
}

// askRelations reads the options of relations, beside labels within bounds, and checks them; nil:
// no names of relations are given.
func askRelations(p *Prepared, bounds words.LabelLimits, threshold float64) (*relating, error) {
	a := &relating{threshold: threshold, adjacency: spans.AdjacencyThreshold(threshold)}
	if v := p.option("relation_threshold"); v != nil {
		a.threshold, _ = number(v)
	}
	if math.IsNaN(a.threshold) || a.threshold < 0 || a.threshold > 1 {
		return nil, errs.Invalidf(relationThreshold, "Field '%s' is %v; a number from 0 to 1 is wanted",
			relationThreshold, a.threshold)
	}
	var err error
	if a.labels, err = relationLabels(p.option("relation_labels")); err != nil || len(a.labels) == 0 {
		return nil, err
	}
	a.floor = spans.LogitFloor(a.threshold)
	return a, a.check(bounds, len(p.req.Labels), usualMarkers)
}

// check refuses names beyond a bound, beside so many labels, and names with a reserved marker.
func (a *relating) check(bounds words.LabelLimits, labels int, reserved []string) error {
	if err := bounds.CheckLabels(relationsField, a.labels, labels, reserved); err != nil {
		return errs.Invalid(relationsField, err.Error())
	}
	return nil
}

// readRelations refuses what the model cannot do: relations where it finds none, and thresholds
// below those of models that find them.
func (f *finding) readRelations() error {
	if f.how.Relations == nil {
		for _, o := range []struct {
			name  string
			asked bool
		}{{relationsField, f.related != nil}, {relationThreshold, f.option("relation_threshold") != nil}} {
			if o.asked {
				return errs.Invalidf(o.name, "Field '%s': model '%s' finds no relations; leave it out",
					o.name, f.model.ID)
			}
		}
		return nil
	}
	if threshold := f.decoding.Threshold; threshold < spans.MinThreshold {
		return errs.Invalidf("options.threshold",
			"Field 'options.threshold' is %v; model '%s' finds relations and needs a threshold of at least %v: raise it",
			threshold, f.model.ID, spans.MinThreshold)
	}
	return nil
}

// relationLabels reads the option relation_labels: a list of names, without the spaces around them;
// nil: none.
func relationLabels(v any) ([]string, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if texts, is := v.([]string); is {
		ok = true
		for _, text := range texts {
			list = append(list, text)
		}
	}
	if !ok {
		return nil, errs.Invalidf(relationsField, "Field '%s': a list of names of relations is wanted",
			relationsField)
	}
	if len(list) > words.MaxLabels {
		return nil, errs.Invalidf(relationsField,
			"Field '%s' has %d names; a request may have at most %d: ask for the rest in another", relationsField,
			len(list), words.MaxLabels)
	}
	names := make([]string, len(list))
	for i, x := range list {
		name, is := x.(string)
		if !is {
			return nil, errs.Invalidf(relationsField,
				"Field '%s[%d]' is no string; the name of a relation is wanted", relationsField, i)
		}
		names[i] = trimmed(name)
	}
	return names, nil
}

// reserved lists the markers that no label may have in it.
func (f *finding) reserved() []string {
	list := []string{f.how.EntToken, f.how.SepToken}
	if how := f.how.Relations; how != nil {
		list = append(list, how.Token)
	}
	return list
}

// relationMarker returns the token before a relation, of a model that finds relations. It is known
// since the model was loaded.
func (f *finding) relationMarker() []int32 {
	how := f.how.Relations
	if how == nil {
		return nil
	}
	marker, _ := f.use.Tokenizer().TokenToID(how.Token)
	return []int32{marker}
}

// relationPrompt appends to the prompt of a model of relations their names, each behind its marker,
// and a separator, which is there without any name, too.
func (f *finding) relationPrompt(separator int32) error {
	how := f.how.Relations
	if how == nil {
		return nil
	}
	if related := f.related; related != nil {
		if err := related.check(f.bounds, len(f.labels), f.reserved()); err != nil {
			return err
		}
		ids, ends, err := f.tokenize(related.labels, nil, nil)
		if err != nil {
			return err
		}
		f.prompt, related.markers = appendLabels(f.prompt, f.relationMarker()[0], how.EmbedRel, ids, ends)
	}
	f.prompt = append(f.prompt, separator)
	return nil
}

// appendLabels appends labels to a prompt, each behind the marker. ids has their tokens, which end
// at ends. It also returns the place of each label's row: its marker, or what follows that, be it
// the next one.
func appendLabels(
	prompt []int32, marker int32, embed bool, ids []int32, ends []int,
) (longer, places []int32) {
	from := 0
	for _, end := range ends {
		at := int32(len(prompt))
		prompt = append(append(prompt, marker), ids[from:end]...)
		if from = end; !embed {
			at++
		}
		places = append(places, at)
	}
	return prompt, places
}

// pairSpans notes the spans of a window and which of them relations are looked for between. all
// lists the model's candidates, at most arch.MaxCandidates. Where no adjacency depends on the
// others, only those that were decoded are: no answer names another.
func (f *finding) pairSpans(w *window, found []spans.Span, all [][2]int) {
	w.in = foundIn{spans: slices.Clone(found), candidates: all}
	if f.how.Relations.Adjacency == nil {
		w.in.candidates = spans.Decoded(all, found)
	}
}

// relate finds the relations of windows whose entities are found.
func (f *finding) relate(all []*window) error {
	pairs := slices.DeleteFunc(slices.Clone(all), func(w *window) bool {
		return len(w.in.candidates) < 2 || len(w.in.spans) == 0 || f.result.Found[w.input].Err != nil
	})
	if len(pairs) == 0 {
		return nil
	}
	v, err := f.use.Variant(arch.Want{Give: f.how.Relations.Gives()})
	if err != nil {
		return f.recordError(err)
	}
	for f.related.variant = v; len(pairs) > 0; {
		var again []*window
		f.again = make([]int, len(pairs))
		for n, w := range pairs {
			f.again[n] = w.input
		}
		err := f.job(f.related.variant, len(pairs), true, func(first, end int) ([]batch.Item, error) {
			items := make([]batch.Item, end-first)
			for n := range items {
				items[n] = f.relationItem(pairs[first+n])
				items[n].Index = n
			}
			return items, f.room.above(relationThreshold, f.related.threshold, items, pairs[first].input)
		}, func(n int, out *batch.Result) error {
			more, err := f.decodeRelations(pairs[n], out)
			if more {
				again = append(again, pairs[n])
			}
			return err
		})
		f.again = nil
		if err != nil {
			return err
		}
		pairs = again
	}
	return nil
}

// relationItem makes the batch item of a window's pairs.
func (f *finding) relationItem(w *window) batch.Item {
	item, n := f.item(w), len(w.in.candidates)
	item.Markers.First = f.related.markers
	places := make([]int32, 2*n)
	item.Spans.First, item.Spans.Last = places[:n], places[n:]
	for i, c := range w.in.candidates {
		item.Spans.First[i], item.Spans.Last[i] = int32(c[0]), int32(c[1])
	}
	item.Specs = nil
	most := n * (n + 1) / 2 * len(f.related.labels)
	for o, room := range w.in.rooms {
		output := &f.related.variant.Outputs[o]
		spec := f.related.variant.FoundSpec(output, most, f.related.floor)
		if room > 0 {
			spec.Dims, spec.Bytes = int32(room), int(engine.FoundBytes(output, room))
		}
		item.Specs = append(item.Specs, spec)
	}
	if a := f.how.Relations.Adjacency; a != nil {
		item.Specs = append(item.Specs, batch.Spec{
			DType: int32(engine.F32), Values: true, Bytes: 4 * n * a.Columns})
	}
	return item
}

// decodeRelations reads what the device gave for a window's pairs, or notes the room that it needs
// and returns true.
func (f *finding) decodeRelations(w *window, out *batch.Result) (again bool, err error) {
	if f.result.Found[w.input].Err != nil {
		return false, nil
	}
	n, related := len(w.in.candidates), f.related
	var links []spans.Link
	for o := range w.in.rooms {
		output := &related.variant.Outputs[o]
		room := (len(out[o]) - int(engine.FoundBytes(output, 0))) / (4 * output.Columns)
		count, list := engine.Spans(out[o], room)
		switch {
		case count < 0 || count > n*(n+1)/2*len(related.labels):
			return false, fmt.Errorf("task: %d scores of %d candidates and %d relations",
				count, n, len(related.labels))
		case count > maxLinks/2:
			return false, f.reader.refuse(w.input, errs.Invalidf(relationThreshold,
				"Field '%s' is %v, above which are %d relations of %d entities, more than %d; raise it",
				relationThreshold, related.threshold, count, n, maxLinks/2))
		case count > room:
			related.variant.Grow(count)
			w.in.rooms[o], again = count, true
		}
		for _, s := range list {
			link := spans.Link{Head: int(s.First), Tail: int(s.Last), Label: int(s.Label), Logit: s.Logit}
			if o == 1 {
				link.Head, link.Tail = link.Tail, link.Head
			}
			links = append(links, link)
		}
	}
	if again {
		return true, nil
	}
	if a := f.how.Relations.Adjacency; a != nil {
		links = spans.Adjacent(links, a.Matrix(floats(out[2]), n), n, related.adjacency)
	}
	decoded := spans.DecodeRelations(w.in.spans, w.in.candidates, links, related.threshold)
	if len(decoded) == 0 {
		return false, nil
	}
	text := f.req.Inputs[w.input].Text
	at := bytesOf(text)
	named := make([]string, len(w.in.spans))
	for i, s := range spans.Entities(w.in.spans, w.Words) {
		named[i] = text[at(s.Start):at(s.End)]
	}
	for _, r := range decoded {
		w.in.triples = append(w.in.triples, spans.Triple{Head: named[r.Head], Tail: named[r.Tail],
			Relation: related.labels[r.Label], Score: r.Score})
	}
	return false, nil
}

// putRelations answers input i with the relations that its windows found.
func (f *finding) putRelations(i int, all []*window) error {
	if f.related == nil {
		return nil
	}
	found := make([][]spans.Triple, len(all))
	for n, w := range all {
		found[n] = w.in.triples
	}
	triples := spans.Triples(found)
	bytes := int64(len(triples)) * entryBytes
	for _, t := range triples {
		bytes += int64(len(t.Head) + len(t.Tail))
	}
	if err := f.hold(bytes, i+1); err != nil {
		return err
	}
	answer := &f.result.Found[i]
	for _, t := range triples {
		answer.Relations = append(answer.Relations, api.Relation{Head: t.Head, Tail: t.Tail,
			Relation: t.Relation, Score: float64(t.Score)})
	}
	return nil
}
