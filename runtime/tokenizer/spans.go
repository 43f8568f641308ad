package tokenizer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// TokenSpan is a token and its bytes in its text.
type TokenSpan struct {
	ID         int32
	Start, End uint32 // bytes of the text
	special    uint32
}

// Special reports whether the token is a special one, which stands for no text.
func (p TokenSpan) Special() bool { return p.special != 0 }

// TextSpans holds the tokens of one text.
type TextSpans struct {
	Tokens    []TokenSpan
	Truncated bool // Options.MaxTokens removed tokens
}

// IDs returns the tokens' ids.
func (p *TextSpans) IDs() []int32 {
	ids := make([]int32, len(p.Tokens))
	for i, t := range p.Tokens {
		ids[i] = t.ID
	}
	return ids
}

// EncodeSpans tokenizes valid UTF-8 texts and gives the span of each token. It runs on up to
// GOMAXPROCS goroutines and gives the same ids as Encode, but slower. The first error in the order
// of texts is returned.
func (t *Tokenizer) EncodeSpans(ctx context.Context, texts []string, opt Options) ([]TextSpans, error) {
	out, failures := make([]TextSpans, len(texts)), make([]error, len(texts))
	var taken atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			i := int(taken.Add(1)) - 1
			if i >= len(texts) {
				return
			}
			if out[i], failures[i] = t.spansOf(ctx, texts[i], opt); failures[i] != nil {
				failed.Store(true)
			}
		}
	}
	var all sync.WaitGroup
	for range min(cap(slots), len(texts)) - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
	for i, err := range failures {
		switch {
		case err == nil:
		case errors.Is(err, ErrClosed), errors.Is(err, ctx.Err()):
			return nil, err
		default:
			return nil, &TextError{Index: i, Err: err}
		}
	}
	return out, nil
}

func (t *Tokenizer) spansOf(ctx context.Context, text string, opt Options) (TextSpans, error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return TextSpans{}, ctx.Err()
	}
	defer func() { <-slots }()
	if err := ctx.Err(); err != nil {
		return TextSpans{}, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.lib.open() {
		return TextSpans{}, ErrClosed
	}
	stop, release := stopFlag(ctx, len(text))
	defer release()
	tokens, cut, err := t.encodeSpans(text, opt, stop)
	if errors.Is(err, errStopped) {
		return TextSpans{}, ctx.Err()
	}
	return TextSpans{Tokens: tokens, Truncated: cut}, err
}
