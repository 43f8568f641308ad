package task

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// extract finds the entities or classes of each of the request's inputs.
func (r *run) extract() error {
	n, how := len(r.req.Inputs), r.family.extract
	r.reader.fail = r.fail
	classes := 0
	if how.classes != nil {
		classes = how.classes(r)
	}
	if err := r.hold(int64(n)*int64(listBytes+entryBytes*classes), n); err != nil {
		return err
	}
	r.result.Found = make([]Extracted, n)
	r.prepared()
	return how.run(r)
}

// fail answers an item with an error. An item keeps its first error.
func (r *run) fail(item int, why *errs.Error) {
	if r.result.Found[item].Err == nil {
		r.result.Found[item] = Extracted{Err: why}
	}
}

// logits runs n texts through the head that gives the output out, a value per label for each text
// or each of its tokens. It passes to put the logits of every item that has no error; they are
// finite.
func (r *run) logits(
	out arch.Output, n int, items func(first, end int, results *sizes) ([]batch.Item, error),
	put func(i int, z []float64) error,
) error {
	v, err := r.variantFor(arch.Want{Give: arch.Give(out)})
	if err != nil {
		return err
	}
	answered := func(i int) bool { return r.result.Found[r.reader.item(i)].Err == nil }
	sizes := newSizes(v, forms{})
	least, room := sizes.of(1, 0), chunkRoom{hold: r.hold}
	return r.job(v, n, false, func(first, end int) ([]batch.Item, error) {
		list, err := items(first, end, &sizes)
		for i := range list {
			if !answered(first + i) { // the item keeps its place and costs one token
				r.reader.tokens -= len(list[i].IDs)
				list[i] = batch.Item{
					Inputs: batch.Inputs{IDs: list[i].IDs[:min(1, len(list[i].IDs))]}, Specs: least, Index: i,
				}
			}
		}
		if err == nil {
			err = room.add(list, r.reader.item(end-1)+1)
		}
		return list, err
	}, func(i int, out *batch.Result) error {
		if !answered(i) {
			return nil
		}
		return put(i, wide(floats(out[0])))
	})
}

// checkLabels refuses a label that the model's head does not have, because it could never be found.
func (r *run) checkLabels(own []string) error {
	for i, l := range r.req.Labels {
		if !containsFold(own, l) {
			return errs.Invalidf("params.labels",
				"label %d of params.labels is %s; model '%s' has the labels %s",
				i, errs.Quote(l[:min(len(l), 100)]), r.model.ID, strings.Join(own[:min(len(own), 50)], ", "))
		}
	}
	return nil
}

// wants reports whether the request asks for a label of the model, ignoring case.
func (r *run) wants(label string) bool {
	return len(r.req.Labels) == 0 || containsFold(r.req.Labels, label)
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
}

// textItems tokenises texts into items with results of those sizes. first is the number of the
// first text in the request.
func (r *reader) textItems(inputs []api.Item, first int, results *sizes) ([]batch.Item, error) {
	b, err := r.read(inputs, first)
	if err != nil {
		return nil, err
	}
	items := make([]batch.Item, len(inputs))
	for i := range items {
		ids := r.model.Weights().Read(b.Text(i))
		items[i] = batch.Item{Inputs: batch.Inputs{IDs: ids}, Specs: results.of(len(ids), 0), Index: i}
	}
	return items, nil
}

func wide(z []float32) []float64 {
	out := make([]float64, len(z))
	for i, x := range z {
		out[i] = float64(x)
	}
	return out
}

// softmax turns logits into probabilities that sum to one.
func softmax(z []float64) []float64 {
	out, sum, top := make([]float64, len(z)), 0.0, slices.Max(z)
	for i, x := range z {
		out[i] = math.Exp(x - top)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// sigmoids turns each logit into a probability on its own.
func sigmoids(z []float64) []float64 {
	out := make([]float64, len(z))
	for i, x := range z {
		out[i] = 1 / (1 + math.Exp(-x))
	}
	return out
}

// ranked returns labels by score, best first; equal scores keep their order. It applies the options
// threshold and top_k.
func ranked(labels []string, scores []float64, options map[string]any) []api.Class {
	threshold, cut := number(options["threshold"])
	out := make([]api.Class, 0, len(labels))
	for i, l := range labels {
		if !cut || scores[i] >= threshold {
			out = append(out, api.Class{Label: l, Score: scores[i]})
		}
	}
	slices.SortStableFunc(out, func(a, b api.Class) int { return cmp.Compare(b.Score, a.Score) })
	if k, ok := number(options["top_k"]); ok && k > 0 {
		out = out[:min(len(out), int(k))]
	}
	return out
}

// number reads an option that the catalog has already checked to be a number.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case int:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}
