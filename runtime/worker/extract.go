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
}

// Extracted is what was found in one text: entities by place, classes by score, best first.
type Extracted struct {
	Entities []api.Entity
	Classes  []api.Class
}

// Extract answers one request; see Encode for ctx and errors.
func (w *Worker) Extract(ctx context.Context, r *ExtractRequest) (*ExtractResult, error) {
	start := time.Now()
	p, err := w.planExtract(r)
	if err != nil {
		return nil, err
	}
	model, adapter, done, err := w.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer done()
	x := &extraction{ctx: ctx, model: model, adapter: adapter, plan: p, req: r, reader: newReader(ctx, model, p, ""),
		result: ExtractResult{Model: p.model, Items: make([]Extracted, len(r.Texts))}}
	x.result.Timings.Preprocess = time.Since(start)
	if err := x.run(); err != nil {
		return nil, w.translate(ctx, w.recordError(err, p), p.model, x.queue, len(r.Texts), "extraction")
	}
	res := &x.result
	res.Tokens, res.Timings.Tokenize, res.Timings.Total = x.reader.tokens, x.reader.took, time.Since(start)
	x.queue.RequestDone(res.Timings.Total)
	return res, nil
}

// extraction is a request on its way through a loaded model. Owned by one goroutine.
type extraction struct {
	ctx     context.Context
	model   *model
	plan    *plan
	req     *ExtractRequest
	reader  *reader
	adapter batch.Adapter
	queue   *batch.Queue // set by run
	result  ExtractResult
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

// logits runs n items through the head that gives that many values a unit of each item, and hands them on.
func (x *extraction) logits(want arch.Want, n int, items func(first, end int) ([]batch.Item, error), put func(i int, z []float32) error) error {
	v, err := x.model.variant(want)
	if err != nil {
		return err
	}
	x.queue = v.queue
	j := job{ctx: x.ctx, queue: v.queue, n: n, timings: &x.result.Timings, adapter: x.adapter, make: items, put: func(first int, results []batch.Result) error {
		for i := range results {
			z := floats(results[i][0])
			for _, logit := range z {
				if logit-logit != 0 { // NaN or infinite
					return errs.NonFinite(x.plan.model.ID, "scores")
				}
			}
			if err := put(first+i, z); err != nil {
				return err
			}
		}
		return nil
	}}
	return j.run()
}

// zeroShot asks a model of natural language inference whether each text entails "This text is about {label}." for each label
// (Yin 2019, arXiv:1909.00161). The labels' entailment logits compete in a softmax, or with multi_label stand alone.
func (x *extraction) zeroShot() error {
	entails := entailment(x.model.weights.Labels)
	if entails < 0 {
		return errs.Invalidf("model", "Model '%s' has no label of entailment among %s and cannot classify with labels of your own",
			x.plan.model.ID, strings.Join(x.model.weights.Labels, ", "))
	}
	template, err := hypothesis(x.plan.options.Raw)
	if err != nil {
		return err
	}
	labels := x.req.Labels
	hypotheses := make([]string, len(labels))
	for i, l := range labels {
		hypotheses[i] = template.Format(l)
	}
	scores := make([][]float64, len(x.req.Texts))
	specs, special := []batch.Spec{values(len(x.model.weights.Labels))}, 0
	n := len(labels)
	err = x.logits(arch.Want{Logits: true}, len(x.req.Texts)*n, func(first, end int) ([]batch.Item, error) {
		a, b := make([]string, end-first), make([]string, end-first)
		for i := range a {
			a[i], b[i] = x.req.Texts[(first+i)/n], hypotheses[(first+i)%n]
		}
		return x.reader.pairItems(a, b, first/n, specs, &special)
	}, func(i int, z []float32) error {
		scores[i/n] = append(scores[i/n], float64(z[entails]))
		return nil
	})
	if err != nil {
		return err
	}
	each := softmax
	if on, _ := x.plan.options.Raw["multi_label"].(bool); on {
		each = sigmoids
	}
	for i, z := range scores {
		x.result.Items[i].Classes = ranked(labels, each(z), x.plan.options.Raw)
	}
	return nil
}

// entailment is the index of the label of that name, or -1.
func entailment(labels []string) int {
	return slices.IndexFunc(labels, func(l string) bool { return strings.HasPrefix(strings.ToLower(l), "entail") })
}

// classify gives each text the labels of the model's own head: one of them, or each by itself where the model says so or the
// request wants it.
func (x *extraction) classify() error {
	m := x.model.weights
	each := softmax
	if on, given := x.plan.options.Raw["multi_label"].(bool); m.MultiLabel && !given || on || len(m.Labels) == 1 {
		each = sigmoids
	}
	specs := []batch.Spec{values(len(m.Labels))}
	return x.logits(arch.Want{Logits: true}, len(x.req.Texts), func(first, end int) ([]batch.Item, error) {
		b, err := x.reader.read(x.req.Texts[first:end], first)
		if err != nil {
			return nil, err
		}
		items := make([]batch.Item, end-first)
		for i := range items {
			items[i] = batch.Item{IDs: b.Text(i), Specs: specs, Index: i}
		}
		return items, nil
	}, func(i int, z []float32) error {
		wide := make([]float64, len(z))
		for j := range z {
			wide[j] = float64(z[j])
		}
		x.result.Items[i].Classes = ranked(m.Labels, each(wide), x.plan.options.Raw)
		if x.req.Labels != nil {
			x.result.Items[i].Classes = slices.DeleteFunc(x.result.Items[i].Classes, func(c api.Class) bool { return !slices.Contains(x.req.Labels, c.Label) })
		}
		return nil
	})
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
