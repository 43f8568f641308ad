package task

import (
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// The family of models whose head classifies a whole text by the model's own labels.
func init() {
	families[catalog.FamilySequenceClassifier] = &family{task: arch.Classify, extract: &extractor{
		classes: func(r *run) int { return len(r.use.Weights().Labels) },
		run:     classifyTexts,
	}}
}

// classifyTexts gives each text the labels of the model's head. The labels share one softmax; each
// has its own sigmoid if the model or the request says multi_label, or if there is only one label.
// Of a model that measures, as a regression does, the logits are the scores unless the request says
// multi_label.
func classifyTexts(r *run) error {
	m := r.use.Weights()
	if err := r.checkLabels(m.Labels); err != nil {
		return err
	}
	each := softmax
	switch on, given := r.option("multi_label").(bool); {
	case m.Regression && !on:
		each = func(z []float64) []float64 { return z }
	case m.MultiLabel && !given || on || len(m.Labels) == 1:
		each = sigmoids
	}
	return r.logits(arch.OutLogits, len(r.req.Inputs),
		func(first, end int, results *sizes) ([]batch.Item, error) {
			return r.reader.textItems(r.req.Inputs[first:end], first, results)
		}, func(i int, z []float64) error {
			classes := ranked(m.Labels, each(z), r.options.Raw)
			r.result.Found[i].Classes = slices.DeleteFunc(classes,
				func(c api.Class) bool { return !r.wants(c.Label) })
			return nil
		})
}

// classify gives the scores of all labels of a classification head, whatever the model's family.
func (r *run) classify() error {
	labels, n := r.use.Weights().Labels, len(r.req.Inputs)
	if err := r.hold(int64(n)*int64(listBytes+entryBytes*len(labels)), n); err != nil {
		return err
	}
	r.result.Labels, r.result.Classes = labels, make([][]float64, n)
	v, err := r.variantFor(arch.Want{Give: arch.Give(arch.OutLogits)})
	if err != nil {
		return err
	}
	r.prepared()
	sizes := newSizes(v, forms{})
	return r.job(v, n, false, func(first, end int) ([]batch.Item, error) {
		inputs := r.req.Inputs[first:end]
		if inputs[0].Second() == nil {
			return r.reader.textItems(inputs, first, &sizes)
		}
		second := make([]string, len(inputs))
		for i := range inputs {
			second[i] = *inputs[i].Second()
		}
		return r.reader.pairItems(r.texts(first, end), second, first, &sizes)
	}, func(i int, out *batch.Result) error {
		r.result.Classes[i] = probabilities(wide(floats(out[0])), r.req.RawScores)
		return nil
	})
}

// probabilities turns a head's logits into scores as text-embeddings-inference does.
func probabilities(z []float64, raw bool) []float64 {
	switch {
	case raw:
		return z
	case len(z) == 1:
		return sigmoids(z)
	}
	return softmax(z)
}
