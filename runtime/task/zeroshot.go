package task

import (
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/words"
)

// The family of natural language inference models, which classify by the request's labels.
func init() {
	families[catalog.FamilyZeroShot] = &family{
		task: arch.Classify,
		suits: func(labels []string) bool {
			return len(labels) != 1 && slices.ContainsFunc(labels, isEntailment)
		},
		extract: &extractor{
			check:   checkClasses,
			classes: func(r *run) int { return len(r.req.Labels) },
			run:     classifyZeroShot,
		},
	}
}

func needLabels(r *Request) error {
	if len(r.Labels) == 0 {
		return errs.Invalidf("params.labels",
			"%s requires labels: give the classes to choose from in params.labels", r.Model.Adapter.Class)
	}
	return nil
}

// checkClasses refuses a request without labels, and labels that no model of the family reads.
func checkClasses(r *Request) error {
	if err := needLabels(r); err != nil {
		return err
	}
	return labelError(aloneLabelLimits.CheckLabels(labelsField, r.Labels, 0, nil))
}

// classifyZeroShot asks the model whether each text entails "This text is about {label}." for each
// label (Yin 2019, arXiv:1909.00161). The labels' entailment logits share one softmax. With
// multi_label, or with a single label, each label's entailment competes only with its
// contradiction, as in the pipeline of transformers: one label alone would always win a softmax. As
// there, only the text is truncated; both are where a hypothesis leaves it no token.
func classifyZeroShot(r *run) error {
	names := r.use.Weights().Labels
	entails, contradicts := entailment(names)
	if entails == contradicts {
		return errs.Invalidf("model",
			"Model '%s' has no label of entailment, or no other, among %s and cannot classify with labels of your own",
			r.model.ID, strings.Join(names, ", "))
	}
	template, err := hypothesis(r.Prepared)
	if err != nil {
		return err
	}
	labels := r.req.Labels
	if err := r.checkHypotheses(template); err != nil {
		return err
	}
	n := len(labels)
	multi, _ := r.option("multi_label").(bool)
	alone := multi || n == 1
	r.reader.each, r.reader.onlyFirst = n, true
	if err := r.refuseBlank(); err != nil {
		return err
	}
	scores := make([][]float64, len(r.req.Inputs))
	err = r.logits(arch.OutLogits, len(r.req.Inputs)*n,
		func(first, end int, results *sizes) ([]batch.Item, error) {
			a, b := make([]string, end-first), make([]string, end-first)
			for i := range a {
				a[i], b[i] = r.req.Inputs[(first+i)/n].Text, template.Format(labels[(first+i)%n])
			}
			list, err := r.reader.pairItems(a, b, first, results)
			if err == nil {
				err = r.refuseDropped(list, a, first)
			}
			return list, err
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
		if r.result.Found[i].Err != nil {
			continue
		}
		if !alone {
			z = softmax(z)
		}
		r.result.Found[i].Classes = ranked(labels, z, r.options.Raw)
	}
	return nil
}

// refuseBlank fails each item whose text is blank: a hypothesis alone says nothing of a text.
func (r *run) refuseBlank() error {
	for i := range r.req.Inputs {
		if !words.IsBlank(r.req.Inputs[i].Text) {
			continue
		}
		number := i * r.reader.each
		place := r.reader.location(number)
		err := r.reader.refuse(number,
			errs.Invalidf(place, "Field '%s' is blank; a text to classify is wanted", place))
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseDropped fails each item of whose text the tokenizer leaves no token: in such a pair a
// separator follows the first token. list has the pairs of the texts from number first on.
func (r *run) refuseDropped(list []batch.Item, texts []string, first int) error {
	separator := r.use.Tokenizer().Special().SEP
	for i, it := range list {
		known := r.result.Found[r.reader.item(first+i)].Err != nil
		if known || len(it.IDs) > 1 && it.IDs[1] != separator {
			continue
		}
		drops, err := r.reader.drops(texts[i], first+i) // else the text begins with a separator
		if err == nil && drops {
			err = r.reader.refuse(first+i, r.reader.dropped(first+i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkHypotheses refuses labels that leave no room for a text, if truncation is forbidden. Every
// item has these labels, so the request fails and not an item.
func (r *run) checkHypotheses(template hypothesisTemplate) error {
	if r.options.OverflowPolicy != "error" {
		return nil
	}
	own := *r.reader
	own.field, own.fail = "params.labels", nil
	for first := 0; first < len(r.req.Labels); first += chunkTexts {
		labels := r.req.Labels[first:min(first+chunkTexts, len(r.req.Labels))]
		hypotheses := make([]string, len(labels))
		for i, l := range labels {
			hypotheses[i] = template.Format(l)
		}
		if _, err := own.readPairs(make([]string, len(labels)), hypotheses, first); err != nil {
			return err
		}
	}
	return nil
}

func isEntailment(label string) bool { return strings.HasPrefix(strings.ToLower(label), "entail") }

// entailment returns the place of the label of entailment and of the label that competes with it:
// the first label, or the last one if entailment is the first. Both are -1 if there is no
// entailment.
func entailment(labels []string) (entails, contradicts int) {
	entails = slices.IndexFunc(labels, isEntailment)
	switch entails {
	case -1:
		return -1, -1
	case 0:
		return 0, len(labels) - 1
	}
	return entails, 0
}
