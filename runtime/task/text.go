package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// reader turns the texts of a request into the token ids of its model. Owned by one goroutine.
type reader struct {
	ctx         context.Context
	model       *model.Model
	entry       *catalog.Resolved
	options     *catalog.RuntimeOptions
	query       bool
	instruction *string   // the request's; the profile's is in options
	limit       int       // tokens of one text, special ones included
	prefix      string    // put before each formatted text
	field       string    // what a client calls the texts: "items", "input"
	each        int       // texts per item of the request, in a row; 0: one
	parts       []int     // what item each item of the request is a part of; nil: of none
	left        bool      // truncate texts at the start, not at the end
	onlyFirst   bool      // truncate the first text of a pair, not the longer one
	prompted    *prompted // where a prompt's tokens are left out; else nil
	// fail, if set, is called for an item that cannot be answered. Without it, such an item fails
	// the request.
	fail func(item int, why *errs.Error)

	tokens int           // read so far
	took   time.Duration // spent on tokenising
}

// newReader returns a reader for the texts of p. field is what the client calls them; "" means
// "items".
func newReader(ctx context.Context, m *model.Model, p *Prepared, field string) *reader {
	limit := m.Limit(p.model)
	if n := p.options.MaxSeqLength; n > 0 {
		limit = min(limit, n)
	}
	return &reader{
		ctx: ctx, model: m, entry: p.model, options: p.options, query: p.query, instruction: p.instruction,
		limit: max(limit, m.Tokenizer().CountSpecial(false)), field: cmp.Or(field, "items"), left: p.left,
		parts: p.req.Parts,
	}
}

// cuts returns the tokenizer's options for texts that are too long.
func (r *reader) cuts() tokenizer.Options {
	return tokenizer.Options{MaxTokens: r.limit, Left: r.left, OnlyFirst: r.onlyFirst}
}

// read tokenises the texts of inputs; first is the number of the first one in the request. Each
// call returns a new batch, because its ids must stay alive as long as anything refers to them.
func (r *reader) read(inputs []api.Item, first int) (*tokenizer.Batch, error) {
	start := time.Now()
	formatted := make([]string, len(inputs))
	for i := range inputs {
		formatted[i] = r.format(inputs[i].Text)
	}
	var b tokenizer.Batch
	if err := r.model.Tokenizer().EncodeParallel(r.ctx, &b, formatted, r.cuts()); err != nil {
		return nil, r.textError(err, first)
	}
	if r.prompted != nil {
		if err := r.prompted.check(r, &b, first); err != nil {
			return nil, err
		}
	}
	r.took += time.Since(start)
	return &b, r.checkCut(&b, first)
}

// readPairs tokenises pairs of a first and a second text. number is that of the first pair in the
// request.
func (r *reader) readPairs(a, b []string, number int) (*tokenizer.Batch, error) {
	start := time.Now()
	if r.model.Weights().LowerCase {
		a, b = lower(a), lower(b)
	}
	var out tokenizer.Batch
	cuts := r.cuts()
	// a pair has more than a text
	cuts.MaxTokens = max(cuts.MaxTokens, r.model.Tokenizer().CountSpecial(true))
	if err := r.model.Tokenizer().EncodePairsParallel(r.ctx, &out, a, b, cuts); err != nil {
		return nil, r.textError(err, number)
	}
	r.took += time.Since(start)
	return &out, r.checkCut(&out, number)
}

// readSpans tokenises unformatted texts and returns the span of each token.
func (r *reader) readSpans(texts []string, first int) ([]tokenizer.TextSpans, error) {
	start := time.Now()
	placed, err := r.model.Tokenizer().EncodeSpans(r.ctx, texts, r.cuts())
	if err != nil {
		return nil, r.textError(err, first)
	}
	r.took += time.Since(start)
	var b tokenizer.Batch // counted and checked as read does
	for i := range placed {
		b.IDs = append(b.IDs, placed[i].IDs()...)
		b.Truncated = append(b.Truncated, placed[i].Truncated)
	}
	return placed, r.checkCut(&b, first)
}

func lower(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = lowerCase(s)
	}
	return out
}

// lowerCase returns the text in lower case as Unicode has it, which is two characters for İ.
func lowerCase(text string) string {
	return strings.ToLower(strings.ReplaceAll(text, "\u0130", "i\u0307"))
}

// checkCut counts the tokens. It refuses truncated texts if the request forbids truncation.
func (r *reader) checkCut(b *tokenizer.Batch, first int) error {
	r.tokens += len(b.IDs)
	for i, cut := range b.Truncated {
		if err := r.refuseCut(cut, first+i); err != nil {
			return err
		}
	}
	return nil
}

// refuseCut refuses a truncated text if the request forbids truncation.
func (r *reader) refuseCut(cut bool, number int) error {
	if !cut || r.options.OverflowPolicy != "error" {
		return nil
	}
	place := r.location(number)
	return r.refuse(number, errs.TooLong(place, fmt.Sprintf(
		"Field '%s' has more than %d tokens, the limit of model '%s', and the request forbids cutting it",
		place, r.limit, r.entry.ID)))
}

// refuse fails the item of a text if items may fail alone, and otherwise the request. The error
// gets the item's number.
func (r *reader) refuse(number int, why *errs.Error) error {
	r.about(number, why)
	if r.fail != nil {
		r.fail(r.item(number), why)
		return nil
	}
	return why
}

// dropped is the error of a text of which the tokenizer leaves no token.
func (r *reader) dropped(number int) *errs.Error {
	place := r.location(number)
	return errs.Invalidf(place,
		"Field '%s' has only characters that the model's tokenizer drops; a text with words is wanted", place)
}

// drops reports whether the tokenizer leaves no token of a text.
func (r *reader) drops(text string, number int) (bool, error) {
	var b tokenizer.Batch
	err := r.model.Tokenizer().EncodeParallel(r.ctx, &b, []string{r.lower(text)},
		tokenizer.Options{NoSpecial: true, MaxTokens: 1})
	if err != nil {
		return false, r.textError(err, number)
	}
	return len(b.IDs) == 0, nil
}

// about gives an error the number of the item that a text belongs to.
func (r *reader) about(number int, why *errs.Error) *errs.Error {
	if r.field != queryField {
		item := r.whole(number)
		why.Item = &item
	}
	return why
}

// queryField is the field of a query, which is no item of its request.
const queryField = "query"

// item returns the item of the request that a text belongs to; location is what a client calls it.
// whole is the number of that item for the client, who does not know parts.
func (r *reader) item(number int) int { return number / max(1, r.each) }

func (r *reader) whole(number int) int {
	if r.parts != nil {
		return r.parts[r.item(number)]
	}
	return r.item(number)
}

func (r *reader) location(number int) string {
	if r.field == queryField { // a request has one query
		return r.field
	}
	return fmt.Sprintf("%s[%d]", r.field, r.whole(number))
}

// format applies templates and instructions. Without either, it applies the model's own prompts,
// under the names that sentence-transformers uses.
func (r *reader) format(text string) string {
	return r.lower(r.prefix + r.options.FormatText(r.ownPrompt()+text, r.query, r.instruction))
}

// prompt returns what format puts before a text.
func (r *reader) prompt() string {
	return r.lower(r.prefix + r.options.Prompt(r.query, r.instruction) + r.ownPrompt())
}

// ownPrompt returns the prompt of the model's files that applies to the texts, "" for none.
func (r *reader) ownPrompt() string {
	o, w := r.options, r.model.Weights()
	instructed := r.instruction != nil || o.Instruction != nil || r.query && o.DefaultInstruction != nil
	if o.QueryTemplate != nil || o.DocTemplate != nil || instructed {
		return ""
	}
	name := "document"
	if r.query {
		name = "query"
	}
	prompt, ok := w.Prompts[name]
	if !ok {
		prompt = w.Prompts[w.DefaultPrompt]
	}
	return prompt
}

func (r *reader) lower(text string) string {
	if r.model.Weights().LowerCase {
		return lowerCase(text)
	}
	return text
}

// check validates the token ids of the client's list i. A list that is too long is truncated or
// refused, as a text is.
func (r *reader) check(ids []int32, i int) ([]int32, error) {
	vocab := int32(r.model.Weights().Vocab)
	if len(ids) == 0 {
		return nil, errs.Invalidf(r.field, "Field '%s' has no token ids; it needs at least one",
			r.location(i))
	}
	for _, id := range ids {
		if id < 0 || id >= vocab {
			return nil, errs.Invalidf(r.field,
				"Field '%s': token id %d is outside the model's vocabulary of %d", r.location(i), id, vocab)
		}
	}
	if err := r.refuseCut(len(ids) > r.limit, i); err != nil {
		return nil, err
	}
	if over := len(ids) - r.limit; over > 0 && r.left {
		ids = ids[over:]
	}
	ids = ids[:min(len(ids), r.limit)]
	r.tokens += len(ids)
	return ids, nil
}

// textError turns a tokenizer's error about one text into one that names the client's field.
func (r *reader) textError(err error, first int) error {
	var te *tokenizer.TextError
	if errors.As(err, &te) && errors.Is(err, tokenizer.ErrTooLong) {
		place := r.location(first + te.Index)
		return r.about(first+te.Index, errs.TooLong(place, fmt.Sprintf("Field '%s': %v", place, te.Err)))
	}
	return err
}
