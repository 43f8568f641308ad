package task

import (
	"cmp"
	"math"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// The family of zero-shot classifiers that read a text and all its labels in one sequence.
func init() {
	families[catalog.FamilyClassifier] = &family{task: arch.GLiClass, extract: &extractor{
		instructed: true,
		ready: func(p *Prepared) error {
			ask, err := askGLiClass(p.req, p.option)
			if err != nil {
				return err
			}
			return ask.bound(p.window())
		},
		classes: func(r *run) int {
			ask, err := askGLiClass(r.req, r.option)
			if err != nil {
				return 0 // the run tells
			}
			return ask.count()
		},
		run: classifyGLiClass,
	}}
}

// window is the number of tokens that the entry and the request say the model reads, 0 where they
// say none.
func (p *Prepared) window() int {
	n, asked := p.model.MaxSequenceLength, p.options.MaxSeqLength
	if n == 0 || asked == 0 {
		return max(n, asked)
	}
	return min(n, asked)
}

// classifyGLiClass gives each text the scores of the request's labels. In single-label mode the
// labels, or those of one group, share a softmax; a label that is alone has its sigmoid, because it
// would always win a softmax. In multi-label mode each label has its own sigmoid.
func classifyGLiClass(r *run) error {
	ask, err := askGLiClass(r.req, r.option)
	if err != nil {
		return err
	}
	layout := r.use.Weights().Labelled
	if layout == nil {
		return errs.Invalidf("model", "Model '%s' is no GLiClass model", r.model.ID)
	}
	c := &gliclassRun{run: r, ask: ask, layout: layout, scores: make([][]float64, len(r.req.Inputs))}
	n := len(ask.rows)
	r.reader.each = n
	if err := c.measure(); err != nil {
		return err
	}
	err = r.logits(arch.OutLabelLogits, len(r.req.Inputs)*n, c.items, func(i int, z []float64) error {
		c.scores[i/n] = append(c.scores[i/n], ask.probabilities(z, i%n)...)
		return nil
	})
	if err != nil {
		return err
	}
	for i, scores := range c.scores {
		if found := &r.result.Found[i]; found.Err == nil {
			ask.answer(found, scores)
		}
	}
	return nil
}

// probabilities turns the logits of one row's labels into scores.
func (a *gliclassAsk) probabilities(z []float64, row int) []float64 {
	if a.multi {
		return sigmoids(z)
	}
	if a.joint {
		var out []float64
		for _, g := range a.groups {
			out = append(out, softmax(z[:len(g.labels)])...)
			z = z[len(g.labels):]
		}
		return out
	}
	if len(a.rows[row].labels) == 1 {
		return sigmoids(z)
	}
	return softmax(z)
}

// answer makes an item's answer of the scores of all labels, in the order of the groups.
func (a *gliclassAsk) answer(found *Extracted, scores []float64) {
	names := a.rows[0].labels
	if a.groups != nil {
		names, found.Data = nil, make(map[string]any, len(a.groups))
	}
	at := 0
	for _, g := range a.groups {
		for _, l := range g.labels {
			names = append(names, g.name+groupSeparator+l)
		}
		found.Data[g.name] = a.answerGroup(g, scores[at:at+len(g.labels)])
		at += len(g.labels)
	}
	found.Classes = make([]api.Class, 0, len(names))
	for i, l := range names {
		if scores[i] >= a.threshold {
			found.Classes = append(found.Classes, api.Class{Label: l, Score: scores[i]})
		}
	}
	slices.SortStableFunc(found.Classes, func(a, b api.Class) int { return cmp.Compare(b.Score, a.Score) })
}

// evenThreshold is the score from which on labels of a group count as chosen, where the request has
// no threshold.
const evenThreshold = 0.5

// answerGroup is the answer of one group: the best label and how certain it is, or the labels that
// reach the threshold.
func (a *gliclassAsk) answerGroup(g gliclassGroup, scores []float64) map[string]any {
	probabilities, best := make(map[string]any, len(scores)), 0
	for i, l := range g.labels {
		probabilities[l] = scores[i]
		if scores[i] > scores[best] {
			best = i
		}
	}
	if !a.multi {
		return map[string]any{"type": "choice", "choice": g.labels[best], "probabilities": probabilities,
			"confidence": certainty(scores)}
	}
	threshold := a.threshold
	if threshold == 0 {
		threshold = evenThreshold
	}
	chosen := []any{}
	for i, l := range g.labels {
		if scores[i] >= threshold {
			chosen = append(chosen, l)
		}
	}
	return map[string]any{"labels": chosen, "probabilities": probabilities}
}

// certainty is 1 − H(p)/log k: 1 for a certain answer, 0 for a uniform one.
func certainty(p []float64) float64 {
	if len(p) < 2 {
		return 1
	}
	entropy := 0.0
	for _, x := range p {
		if x > 0 {
			entropy -= x * math.Log(x)
		}
	}
	return min(1, max(0, 1-entropy/math.Log(float64(len(p)))))
}

// items makes the sequences of rows [first, end), with the places of their labels.
func (c *gliclassRun) items(first, end int, results *sizes) ([]batch.Item, error) {
	texts, err := c.read(first, end)
	if err != nil {
		return nil, err
	}
	items := make([]batch.Item, end-first)
	for i, ids := range texts {
		rows := c.layout.Rows(ids)
		row := first + i
		if err := c.check(row, ids, &rows); err != nil {
			return nil, err
		}
		c.bill(row, len(ids))
		items[i] = batch.Item{Inputs: batch.Inputs{IDs: ids, TypeIDs: rows.Segments,
			Words:   batch.Places{First: rows.First, Last: rows.Last},
			Markers: batch.Places{First: rows.Text}},
			Specs: results.of(len(ids), len(rows.First)), Index: i}
	}
	return items, nil
}
