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
	t := ref.Model().tokenizer
	placed, err := t.EncodePlaces(ctx, texts, tokenizer.Options{NoSpecial: !addSpecial})
	if err != nil {
		r := reader{field: "inputs"}
		return nil, w.translate(ctx, r.textError(err, 0), p.model, nil, 0, "tokenization")
	}
	out := make([][]Token, len(texts))
	for i := range placed {
		out[i] = make([]Token, len(placed[i].Tokens))
		for j, at := range placed[i].Tokens {
			k := &out[i][j]
			k.ID, k.Special = int(at.ID), at.Special()
			if k.Special {
				if k.Text, err = t.DecodeAll([]int32{at.ID}); err != nil {
					return nil, errs.Internal(err)
				}
				continue
			}
			start, stop := int(at.Start), int(at.End)
			k.Text, k.Start, k.Stop = texts[i][start:stop], &start, &stop
		}
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
	}
	return out, nil
}
