package task

import (
	"context"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// Tokenize splits texts with the model's tokenizer and never truncates them. addSpecial adds the
// special tokens of a single text. hold is asked for the room of the result.
func Tokenize(
	ctx context.Context, h *model.Host, m *catalog.Resolved, texts []string, addSpecial bool, hold Hold,
) ([][]api.Token, error) {
	use, err := useTokenizer(ctx, h, m)
	if err != nil {
		return nil, err
	}
	defer use.Done()
	if use.NullQueue() != nil {
		return tokenizeNull(texts, addSpecial, hold)
	}
	t := use.Tokenizer()
	if err := hold(int64(len(texts))*listBytes, len(texts)); err != nil {
		return nil, err
	}
	out := make([][]api.Token, 0, len(texts))
	for first := 0; first < len(texts); first += chunkTexts {
		some := texts[first:min(first+chunkTexts, len(texts))]
		room, all := make([]int64, len(some)), int64(0) // of the tokens' places, later of the tokens
		for i, text := range some {
			room[i] = int64(len(text)+fewTokens) * placeBytes
			all += room[i]
		}
		if err := hold(all, first+len(some)); err != nil {
			return nil, err
		}
		placed, err := t.EncodeSpans(ctx, some, tokenizer.Options{NoSpecial: !addSpecial})
		if err != nil {
			r := reader{field: "inputs"}
			return nil, translate(ctx, h, r.textError(err, first), m, nil, 0, "tokenization")
		}
		for i := range placed {
			if more := int64(len(placed[i].Tokens))*entryBytes - room[i]; more > 0 {
				if err := hold(more, first+i+1); err != nil {
					return nil, err
				}
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

// The places of a text's tokens take this much each. A text has at most a token for each byte, and
// a few more.
const (
	placeBytes = 16 // a tokenizer.TokenSpan
	fewTokens  = 8
)

// useTokenizer pins the model of a catalog entry, whose tokenizer is wanted.
func useTokenizer(ctx context.Context, h *model.Host, m *catalog.Resolved) (model.Use, error) {
	if err := m.Usable(); err != nil {
		return model.Use{}, errs.Invalid("model", err.Error())
	}
	if len(m.Members) > 0 {
		return model.Use{}, errs.Invalidf("model", "Model '%s' is a union of models: ask one of them, such as '%s'",
			m.ID, m.Members[0].ID)
	}
	return h.Acquire(ctx, m, nil, "")
}

// withTexts adds to each token of a text the piece of text that it stands for.
func withTexts(t *tokenizer.Tokenizer, text string, spans []tokenizer.TokenSpan) ([]api.Token, error) {
	out := make([]api.Token, len(spans))
	for j, at := range spans {
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

// Detokenize turns lists of token ids back into texts; skipSpecial leaves special tokens out. hold
// is asked for the room of the result.
func Detokenize(
	ctx context.Context, h *model.Host, m *catalog.Resolved, ids [][]int32, skipSpecial bool, hold Hold,
) ([]string, error) {
	use, err := useTokenizer(ctx, h, m)
	if err != nil {
		return nil, err
	}
	defer use.Done()
	if use.NullQueue() != nil {
		return detokenizeNull(ctx, ids, skipSpecial, hold)
	}
	t := use.Tokenizer()
	decode := t.DecodeAll
	if skipSpecial {
		decode = t.Decode
	}
	if err := hold(int64(len(ids))*listBytes, len(ids)); err != nil {
		return nil, err
	}
	out := make([]string, len(ids))
	for i, list := range ids {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := t.CheckIDs(list); err != nil {
			return nil, errs.Invalidf("ids", "Field 'ids[%d]': %s",
				i, strings.TrimPrefix(err.Error(), "tokenizer: "))
		}
		if out[i], err = decodeHeld(ctx, list, i+1, decode, hold); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decodePiece is how many ids are decoded before their text has room. The longest tokens of
// vocabularies have a few hundred bytes.
const decodePiece = 4096

// decodeHeld returns the text of a list of ids, for which it asks room. A long list is decoded in
// pieces first, to know how long its text is about before it is made as a whole. items is the
// number of lists that then have room.
func decodeHeld(
	ctx context.Context, ids []int32, items int, decode func([]int32) (string, error), hold Hold,
) (text string, err error) {
	held := 0
	if len(ids) > decodePiece {
		for piece := range slices.Chunk(ids, decodePiece) {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			part, err := decode(piece)
			if err != nil {
				return "", errs.Internal(err)
			}
			if err := hold(int64(len(part)), items-1); err != nil {
				return "", err
			}
			held += len(part)
		}
	}
	if text, err = decode(ids); err != nil {
		return "", errs.Internal(err)
	}
	if more := len(text) - held; more > 0 {
		err = hold(int64(more), items)
	}
	return text, err
}
