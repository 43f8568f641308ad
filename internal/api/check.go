package api

import (
	"cmp"

	"github.com/sie-engine/sie/internal/errs"
)

// What a worker and a gateway both refuse, in the same words: a gateway knows the whole request,
// and its workers see slices of it.

// Reads says what an operation reads of its items besides a text.
type Reads struct {
	Tokens bool // ids in place of the text: vectors
	Second bool // a second text: classification
}

// CheckItems refuses the first item that an operation cannot read, for a model of an adapter class
// that reads text. field is the client's name for the items, "" for items.
func CheckItems(items []Item, field, class string, reads Reads) error {
	field = cmp.Or(field, "items")
	for i := range items {
		in, first := &items[i], &items[0]
		switch {
		case !in.HasText && in.Tokens() == nil:
			return errs.RequiresText(class, i)
		case in.Tokens() != nil && !reads.Tokens:
			return errs.Invalidf(field,
				"Field '%s[%d]' is a list of token ids; they are taken for vectors only", field, i)
		case (in.Tokens() != nil) != (first.Tokens() != nil):
			return errs.Invalidf(field,
				"Field '%s[%d]': a request has token ids in all of its inputs or in none", field, i)
		case in.Second() != nil && !reads.Second:
			return errs.Invalidf(field,
				"Field '%s[%d]' has two texts; they are taken for classification only", field, i)
		case (in.Second() != nil) != (first.Second() != nil):
			return errs.Invalidf(field,
				"Field '%s[%d]': a request has a second text in all of its inputs or in none", field, i)
		}
	}
	return nil
}

// CheckQuery refuses a query without a text, for a model of an adapter class.
func CheckQuery(query *Item, class string) error {
	if query.HasText {
		return nil
	}
	return errs.Invalidf("query", "%s requires text input: Field 'query' has no text", class)
}

// CheckUse refuses fields that no model has a use for yet. model is the client's name for the
// model.
func (r *ExtractRequest) CheckUse(model string) error {
	if !r.OutputSchema.Empty() {
		return Unused("params.output_schema", model)
	}
	return nil
}

// Unused returns the 400 for a field of a request that the model has no use for.
func Unused(param, model string) error {
	return errs.Invalidf(param, "Field '%s': model '%s' has no use for it; remove it", param, model)
}
