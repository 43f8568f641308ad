package task

import (
	"math"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// The family of models that read a query and a text together and score them with a head of one
// label.
func init() {
	families[catalog.FamilyCrossEncoder] = &family{task: arch.Classify, score: scorePairs,
		suits: func(labels []string) bool { return len(labels) == 1 }}
}

// scorePairs reads the query and each text as one sequence. The head's only label is the score.
func scorePairs(r *run) error {
	m := r.use.Weights()
	if len(m.Labels) != 1 {
		return errs.Invalidf("model", "Model '%s' has %d labels and classifies; a model that scores has one",
			r.model.ID, len(m.Labels))
	}
	v, err := r.variantFor(arch.Want{Give: arch.Give(arch.OutLogits)})
	if err != nil {
		return err
	}
	query := r.req.Query.Text
	if ins := r.instructionText(); ins != "" {
		query = ins + " " + query
	} else if m.DefaultPrompt != "" {
		// before the first text of a pair, as CrossEncoder of sentence-transformers does
		query = m.Prompts[m.DefaultPrompt] + query
	}
	sizes := newSizes(v, forms{})
	special := r.use.Tokenizer().CountSpecial(true)
	return r.job(v, len(r.req.Inputs), false, func(first, end int) ([]batch.Item, error) {
		r.special += special * (end - first)
		return r.reader.pairItems(repeat(query, end-first), r.texts(first, end), first, &sizes)
	}, func(i int, out *batch.Result) error {
		r.result.Scores[i] = activate(m.Activation, float64(floats(out[0])[0]))
		return nil
	})
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// activate turns a logit into a score.
func activate(a arch.Activation, x float64) float64 {
	if a == arch.Sigmoid {
		return 1 / (1 + math.Exp(-x))
	}
	return x
}

// pairItems tokenises pairs into items with results of those sizes. first is the number of the
// first pair in the request.
func (r *reader) pairItems(a, b []string, first int, results *sizes) ([]batch.Item, error) {
	out, err := r.readPairs(a, b, first)
	if err != nil {
		return nil, err
	}
	items := make([]batch.Item, len(a))
	from := int32(0)
	for i := range items {
		to := out.Ends[i]
		ids := r.model.Weights().Read(out.IDs[from:to:to])
		items[i] = batch.Item{Inputs: batch.Inputs{IDs: ids}, Specs: results.of(len(ids), 0), Index: i}
		// otherwise the model ignores the types or does not get them, as in transformers
		if r.model.Weights().TypeVocab > 1 && r.model.Tokenizer().GivesTypes() {
			items[i].TypeIDs = out.TypeIDs[from:to:to]
		}
		from = to
	}
	return items, nil
}
