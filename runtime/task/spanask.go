package task

import (
	"math"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/spans"
	"github.com/sie-engine/sie/runtime/words"
)

// labelsField is the place of the labels in a request.
const labelsField = "params.labels"

// usualMarkers are those of all published models. A model with others is asked for them when it is
// loaded.
var usualMarkers = []string{"<<ENT>>", "<<SEP>>", "<<REL>>"}

// spanAsk is what a request asks of a model that finds entities of its labels.
type spanAsk struct {
	decoding spans.Decoding
	adjacent bool    // entities of one label that touch are joined
	floor    float32 // the logit above which the device gives scores
	bounds   words.LabelLimits
	related  *relating // nil: no relations are asked for
}

// askSpans reads the options of a request and checks them and its labels, without a loaded model.
func askSpans(p *Prepared) (a spanAsk, err error) {
	threshold := 0.5
	if v := p.option("threshold"); v != nil {
		threshold, _ = number(v)
	}
	if math.IsNaN(threshold) || threshold < 0 || threshold > 1 {
		return a, errs.Invalidf("options.threshold",
			"Field 'options.threshold' is %v; a number from 0 to 1 is wanted", threshold)
	}
	truth := func(name string, otherwise bool) bool {
		if v, ok := p.option(name).(bool); ok {
			return v
		}
		return otherwise
	}
	a.decoding = spans.Decoding{Threshold: threshold, FlatNER: truth("flat_ner", true),
		MultiLabel: truth("multi_label", false)}
	a.adjacent = truth("merge_adjacent_entities", false)
	a.floor = spans.LogitFloor(threshold)
	a.bounds = words.DefaultLabelLimits
	if n, ok := number(p.option("max_prompt_tokens")); ok {
		a.bounds.MaxPromptTokens = int(n)
	}
	if err := needLabels(p.req); err != nil {
		return a, err
	}
	reserved := usualMarkers
	if p.model.Adapter.Class == biClass { // labels stand in no prompt
		a.bounds, reserved = aloneLabelLimits, nil
	}
	if err := a.check(p.req.Labels, reserved); err != nil {
		return a, err
	}
	a.related, err = askRelations(p, a.bounds, threshold)
	return a, err
}

// check refuses labels beyond a bound, and labels with a reserved marker in them.
func (a *spanAsk) check(labels, reserved []string) error {
	return labelError(a.bounds.CheckLabels(labelsField, labels, 0, reserved))
}

// checkPrompt refuses labels that take too many tokens with their markers.
func (a *spanAsk) checkPrompt(tokens int) error {
	return labelError(a.bounds.CheckPrompt(labelsField, tokens))
}

// labelError returns an error about labels as a 400.
func labelError(err error) error {
	if err == nil {
		return nil
	}
	return errs.Invalid(labelsField, err.Error())
}
