package queue

import (
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// checkInputs refuses inputs that the operation does not read, as a worker does. A worker sees only
// a slice: it cannot tell which refusal of a whole request comes first, nor whether the items of
// two slices are of one kind.
func checkInputs(m models.Model, op string, query *api.Item, items []api.Item, field string) error {
	class := m.Entry.Adapter.Class
	if query != nil && !query.HasText {
		return errs.Invalidf("query", "%s requires text input: Field 'query' has no text", class)
	}
	if field == "" {
		field = "items"
	}
	for i := range items {
		in := &items[i]
		switch {
		case !in.HasText && !hasTokens(in):
			return errs.RequiresText(class, i)
		case hasTokens(in) && op != work.Encode:
			return errs.Invalidf(field,
				"Field '%s[%d]' is a list of token ids; they are taken for vectors only", field, i)
		case hasTokens(in) != hasTokens(&items[0]):
			return errs.Invalidf(field,
				"Field '%s[%d]': a request has token ids in all of its inputs or in none", field, i)
		case hasSecond(in) && op != work.Classify:
			return errs.Invalidf(field,
				"Field '%s[%d]' has two texts; they are taken for classification only", field, i)
		case hasSecond(in) != hasSecond(&items[0]):
			return errs.Invalidf(field,
				"Field '%s[%d]': a request has a second text in all of its inputs or in none", field, i)
		}
	}
	return nil
}

func hasTokens(it *api.Item) bool { return it.Extra != nil && it.Extra.Tokens != nil }
func hasSecond(it *api.Item) bool { return it.Extra != nil && it.Extra.Second != nil }

// checkExtract refuses an extraction as a worker does, in the same order.
func checkExtract(m models.Model, r *api.ExtractRequest) error {
	switch {
	case !r.OutputSchema.Empty():
		return errs.Invalidf("params.output_schema",
			"Field 'params.output_schema': model '%s' has no use for it; remove it", m.Name)
	case r.Instruction != nil && *r.Instruction != "":
		return errs.Invalidf("params.instruction",
			"Field 'params.instruction': model '%s' has no use for it; remove it", m.Name)
	case !m.Entry.Has("json"):
		return errs.NoExtraction(m.Name)
	}
	return checkInputs(m, work.Extract, nil, r.Items, "")
}

// expected returns what the result of each item is expected to take in bytes.
func expected(m *catalog.Resolved, r *api.EncodeRequest) func(i int) int {
	types := r.OutputTypes
	if len(types) == 0 {
		types = []string{"dense"}
	}
	if m.Runtime != nil && m.Runtime.OutputTypes != nil {
		types = nil
		for _, t := range m.Runtime.OutputTypes {
			types = append(types, string(t))
		}
	}
	fixed, perToken := 0, 0
	for _, t := range types {
		switch strings.ToLower(t) {
		case "dense":
			fixed += 4 * max(m.Dims["dense"], 1024)
		case "sparse":
			perToken += 64
		case "multivector":
			perToken += 4 * max(m.Dims["multivector"], 128)
		}
	}
	if perToken == 0 {
		return nil // a slice of the largest vectors is far below the bound
	}
	most := m.MaxSequenceLength
	if most <= 0 {
		most = 32 << 10
	}
	return func(i int) int {
		it := &r.Items[i]
		tokens := len(it.Text)/2 + 16 // more than most texts have
		if hasTokens(it) {
			tokens = len(it.Extra.Tokens)
		}
		return fixed + perToken*min(tokens, most)
	}
}
