package worker

import (
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// zeroShot asks a model of natural language inference whether each text entails "This text is about {label}." for each label
// (Yin 2019, arXiv:1909.00161). The labels' entailment logits compete in a softmax. With multi_label, or a single label, which
// would win any competition, a label's entailment competes with its contradiction alone: as in the pipeline of transformers.
func (x *extraction) zeroShot() error {
	names := x.model.weights.Labels
	entails, contradicts := entailment(names)
	if entails == contradicts {
		return errs.Invalidf("model", "Model '%s' has no label of entailment, or no other, among %s and cannot classify with labels of your own",
			x.plan.model.ID, strings.Join(names, ", "))
	}
	template, err := hypothesis(x.plan)
	if err != nil {
		return err
	}
	labels := x.req.Labels
	hypotheses := make([]string, len(labels))
	for i, l := range labels {
		hypotheses[i] = template.Format(l)
	}
	if err := x.checkHypotheses(hypotheses); err != nil {
		return err
	}
	n := len(labels)
	multi, _ := x.plan.option("multi_label").(bool)
	alone := multi || n == 1
	x.reader.each = n
	scores := make([][]float64, len(x.req.Texts))
	specs, special := []batch.Spec{values(len(names))}, 0
	err = x.logits(arch.Want{Logits: true}, len(x.req.Texts)*n, func(first, end int) ([]batch.Item, error) {
		a, b := make([]string, end-first), make([]string, end-first)
		for i := range a {
			a[i], b[i] = x.req.Texts[(first+i)/n], hypotheses[(first+i)%n]
		}
		return x.reader.pairItems(a, b, first, specs, &special)
	}, func(i int, z []float64) error {
		score := z[entails]
		if alone {
			score = softmax([]float64{z[contradicts], z[entails]})[1]
		}
		scores[i/n] = append(scores[i/n], score)
		return nil
	})
	if err != nil {
		return err
	}
	for i, z := range scores {
		if x.result.Items[i].Err != nil {
			continue
		}
		if !alone {
			z = softmax(z)
		}
		x.result.Items[i].Classes = ranked(labels, z, x.plan.options.Raw)
	}
	return nil
}

// checkHypotheses refuses labels that leave no room for any text, where nothing may be cut: they are every item's, so it is the
// request's fault and not an item's.
func (x *extraction) checkHypotheses(hypotheses []string) error {
	if x.plan.options.OverflowPolicy != "error" {
		return nil
	}
	r := *x.reader
	r.field, r.tooLong = "params.labels", nil
	_, err := r.readPairs(make([]string, len(hypotheses)), hypotheses, 0)
	return err
}

// entailment is the place of the label of that name, and of the one that stands against it: the first, or the last where entailment
// is the first. Both are -1 where there is none.
func entailment(labels []string) (entails, contradicts int) {
	entails = slices.IndexFunc(labels, func(l string) bool { return strings.HasPrefix(strings.ToLower(l), "entail") })
	switch entails {
	case -1:
		return -1, -1
	case 0:
		return 0, len(labels) - 1
	}
	return entails, 0
}
