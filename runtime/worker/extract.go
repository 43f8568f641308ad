package worker

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// ExtractRequest asks what is in some texts.
type ExtractRequest struct {
	Model   string
	Texts   []string
	Labels  []string       // zero-shot: what to look for; else which of the model's labels to answer with, nil for all
	Options map[string]any // the request's own, laid over the profile's
}

// ExtractResult holds what was found in each text, in order.
type ExtractResult struct {
	Model   *catalog.Resolved
	Items   []Extracted
	Tokens  int // read by the model
	Timings Timings
	Ignored []string // options of the request that are for other operations
}

// Extracted is what was found in one text: entities by place, classes by score, best first. An item with Err has neither: it
// could not be answered, and the others could.
type Extracted struct {
	Entities []api.Entity
	Classes  []api.Class
	Err      *errs.Error
}

// Extract answers one request; see Encode for ctx and errors.
func (w *Worker) Extract(ctx context.Context, r *ExtractRequest) (*ExtractResult, error) {
	start := time.Now()
	p, err := w.planExtract(r)
	if err != nil {
		return nil, err
	}
	work, done, err := w.begin(ctx, p, "")
	if err != nil {
		return nil, err
	}
	defer done()
	x := &extraction{passage: work, req: r, hold: holdOf(ctx), result: ExtractResult{Model: p.model, Ignored: p.ignored}}
	x.reader.tooLong = x.fail
	if err := x.hold(int64(len(r.Texts))*int64(listBytes+entryBytes*x.classes()), len(r.Texts)); err != nil {
		return nil, err
	}
	x.result.Items = make([]Extracted, len(r.Texts))
	x.result.Timings.Preprocess = time.Since(start)
	if err := x.run(); err != nil {
		return nil, w.translate(ctx, w.recordError(err, p), p.model, x.queue, len(r.Texts), "extraction")
	}
	res := &x.result
	res.Tokens, res.Timings.Tokenize, res.Timings.Total = x.reader.tokens, x.reader.took, time.Since(start)
	x.queue.RequestDone(res.Timings.Total)
	return res, nil
}

// extraction is a request for what is in texts.
type extraction struct {
	passage
	req    *ExtractRequest
	hold   Hold
	result ExtractResult
}

// classes is how many classes an item's result may have.
func (x *extraction) classes() int {
	switch x.plan.model.Family {
	case catalog.FamilyZeroShot:
		return len(x.req.Labels)
	case catalog.FamilySequenceClassifier:
		return len(x.model.weights.Labels)
	}
	return 0
}

func (x *extraction) run() error {
	switch x.plan.model.Family {
	case catalog.FamilyZeroShot:
		return x.zeroShot()
	case catalog.FamilySequenceClassifier:
		return x.classify()
	case catalog.FamilyTagger:
		return x.tag()
	}
	return errs.NoExtraction(x.plan.model.ID)
}

// fail answers an item with an error.
func (x *extraction) fail(item int, why *errs.Error) { x.result.Items[item] = Extracted{Err: why} }

// logits runs n texts through the head that gives a value for each of the model's labels, for each text or each of its tokens. It
// hands on the logits of items that can be answered: all finite.
func (x *extraction) logits(want arch.Want, n int, items func(first, end int) ([]batch.Item, error), put func(i int, z []float64) error) error {
	v, err := x.use(want)
	if err != nil {
		return err
	}
	answered := func(i int) bool { return x.result.Items[x.reader.item(i)].Err == nil }
	least := []batch.Spec{values(len(x.model.weights.Labels))}
	j := job{ctx: x.ctx, queue: v.queue, n: n, timings: &x.result.Timings, adapter: x.adapter, make: func(first, end int) ([]batch.Item, error) {
		list, err := items(first, end)
		for i := range list {
			if !answered(first + i) { // as little work as keeps its place
				x.reader.tokens -= len(list[i].IDs)
				list[i] = batch.Item{IDs: list[i].IDs[:min(1, len(list[i].IDs))], Specs: least, Index: i}
			}
		}
		return list, err
	}, put: func(first int, results []batch.Result) error {
		for i := range results {
			z := wide(floats(results[i][0]))
			if answered(first+i) && slices.ContainsFunc(z, func(logit float64) bool { return logit-logit != 0 }) { // NaN or infinite
				x.fail(x.reader.item(first+i), errs.NonFinite(x.plan.model.ID, "scores"))
			}
			if !answered(first + i) {
				continue
			}
			if err := put(first+i, z); err != nil {
				return err
			}
		}
		return nil
	}}
	return j.run()
}

// classify gives each text the labels of the model's own head: one of them, or each by itself where the model says so or the
// request wants it.
func (x *extraction) classify() error {
	m := x.model.weights
	if err := x.checkLabels(m.Labels); err != nil {
		return err
	}
	each := softmax
	if on, given := x.plan.option("multi_label").(bool); m.MultiLabel && !given || on || len(m.Labels) == 1 {
		each = sigmoids
	}
	return x.logits(arch.Want{Logits: true}, len(x.req.Texts), func(first, end int) ([]batch.Item, error) {
		return x.reader.textItems(x.req.Texts[first:end], first)
	}, func(i int, z []float64) error {
		classes := ranked(m.Labels, each(z), x.plan.options.Raw)
		x.result.Items[i].Classes = slices.DeleteFunc(classes, func(c api.Class) bool { return !x.wants(c.Label) })
		return nil
	})
}

// checkLabels refuses a label that a head with labels of its own does not have: nothing would ever be found for it.
func (x *extraction) checkLabels(own []string) error {
	for i, l := range x.req.Labels {
		if !containsFold(own, l) {
			return errs.Invalidf("params.labels", "label %d of params.labels is %s; model '%s' has the labels %s", i, errs.Quote(l[:min(len(l), 100)]),
				x.plan.model.ID, strings.Join(own[:min(len(own), 50)], ", "))
		}
	}
	return nil
}

// wants says whether the request asks for a label of the model's own, upper or lower case.
func (x *extraction) wants(label string) bool {
	return len(x.req.Labels) == 0 || containsFold(x.req.Labels, label)
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
}

// textItems tokenises texts, number first of the request and on, into items with a value for each of the model's labels.
func (r *reader) textItems(texts []string, first int) ([]batch.Item, error) {
	b, err := r.read(texts, first)
	if err != nil {
		return nil, err
	}
	items, specs := make([]batch.Item, len(texts)), []batch.Spec{values(len(r.model.weights.Labels))}
	for i := range items {
		items[i] = batch.Item{IDs: b.Text(i), Specs: specs, Index: i}
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

// softmax turns logits into shares of one.
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

// sigmoids turns each logit into a probability of its own.
func sigmoids(z []float64) []float64 {
	out := make([]float64, len(z))
	for i, x := range z {
		out[i] = 1 / (1 + math.Exp(-x))
	}
	return out
}

// ranked sorts labels by score, of equals the first, and keeps what the options threshold and top_k leave.
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

// number reads an option that the catalog has checked to be one.
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
