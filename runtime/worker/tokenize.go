package worker

import (
	"context"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// Token is one token of a text. Special tokens have no place; the others' is in bytes of the text.
type Token struct {
	ID          int
	Text        string
	Special     bool
	Start, Stop *int
}

// Tokenize splits texts as the model's tokenizer does, whole, with or without the special tokens of one text.
func (w *Worker) Tokenize(ctx context.Context, id string, texts []string, addSpecial bool) ([][]Token, error) {
	p, err := w.planAny(catalog.OpEncode, id, nil, nil)
	if err != nil {
		return nil, err
	}
	ref, err := w.acquire(ctx, p.model)
	if err != nil {
		return nil, err
	}
	defer ref.Release()
	t, hold := ref.Model().tokenizer, holdOf(ctx)
	if err := hold(int64(len(texts))*listBytes, len(texts)); err != nil {
		return nil, err
	}
	out := make([][]Token, 0, len(texts))
	for first := 0; first < len(texts); first += chunkTexts {
		some := texts[first:min(first+chunkTexts, len(texts))]
		placed, err := t.EncodePlaces(ctx, some, tokenizer.Options{NoSpecial: !addSpecial})
		if err != nil {
			r := reader{field: "inputs"}
			return nil, w.translate(ctx, r.textError(err, first), p.model, nil, 0, "tokenization")
		}
		for i := range placed {
			if err := hold(int64(len(placed[i].Tokens))*entryBytes, first+i+1); err != nil {
				return nil, err
			}
			tokens, err := withTexts(t, some[i], placed[i].Tokens)
			if err != nil {
				return nil, errs.Internal(err)
			}
			out = append(out, tokens)
		}
	}
	return out, nil
}

// withTexts gives the tokens of a text what they stand for.
func withTexts(t *tokenizer.Tokenizer, text string, places []tokenizer.Place) ([]Token, error) {
	out := make([]Token, len(places))
	for j, at := range places {
		k := &out[j]
		k.ID, k.Special = int(at.ID), at.Special()
		if k.Special {
			var err error
			if k.Text, err = t.DecodeAll([]int32{at.ID}); err != nil {
				return nil, err
			}
			continue
		}
		start, stop := int(at.Start), int(at.End)
		k.Text, k.Start, k.Stop = text[start:stop], &start, &stop
	}
	return out, nil
}

// Detokenize turns lists of token ids back into texts.
func (w *Worker) Detokenize(ctx context.Context, id string, ids [][]int32, skipSpecial bool) ([]string, error) {
	p, err := w.planAny(catalog.OpEncode, id, nil, nil)
	if err != nil {
		return nil, err
	}
	ref, err := w.acquire(ctx, p.model)
	if err != nil {
		return nil, err
	}
	defer ref.Release()
	t := ref.Model().tokenizer
	decode := t.DecodeAll
	if skipSpecial {
		decode = t.Decode
	}
	hold := holdOf(ctx)
	if err := hold(int64(len(ids))*listBytes, len(ids)); err != nil {
		return nil, err
	}
	out := make([]string, len(ids))
	for i, list := range ids {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := t.CheckIDs(list); err != nil {
			return nil, errs.Invalidf("ids", "Field 'ids[%d]': %s", i, strings.TrimPrefix(err.Error(), "tokenizer: "))
		}
		if out[i], err = decode(list); err != nil {
			return nil, errs.Internal(err)
		}
		if err := hold(int64(len(out[i])), i+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}
