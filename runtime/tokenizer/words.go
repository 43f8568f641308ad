package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Words is an item that is split into words.
type Words struct {
	Texts []string
	// Marks[i] >= 0 is the token that stands for word i, whatever its text: a marker of the model,
	// which no text is tokenized to. A negative number leaves the word to the tokenizer. Marks is
	// nil or as long as Texts.
	Marks []int32
}

// WordOptions configures a call of EncodeWords.
type WordOptions struct {
	// MaxTokens is the number of tokens kept per item, special tokens included; 0 or less keeps
	// all.
	MaxTokens int
	// NoSpecial leaves out the special tokens.
	NoSpecial bool
	// Reserved lists tokens that no text is tokenized to, such as the model's markers. Where one is
	// written in a word, its characters are text like any other.
	Reserved []int32
}

// WordBatch is the packed result of EncodeWords. The slices belong to the caller, who may reuse the
// batch: a call overwrites it and keeps its memory. After an error it is empty.
type WordBatch struct {
	IDs       []int32 // all items, end to end
	Words     []int32 // like IDs: the number of the token's word in its item; −1 for a special token
	Ends      []int32 // Ends[i] is where item i ends in IDs
	Truncated []bool  // Truncated[i]: MaxTokens removed tokens of item i
}

// Item returns the ids of item i and their words, views of IDs and Words.
func (b *WordBatch) Item(i int) (ids, words []int32) {
	from := int32(0)
	if i > 0 {
		from = b.Ends[i-1]
	}
	to := b.Ends[i]
	return b.IDs[from:to:to], b.Words[from:to:to]
}

func (b *WordBatch) reset() {
	b.IDs, b.Words, b.Ends, b.Truncated = b.IDs[:0], b.Words[:0], b.Ends[:0], b.Truncated[:0]
}

func (b *WordBatch) add(other *WordBatch) {
	base := int32(len(b.IDs))
	b.IDs = append(b.IDs, other.IDs...)
	b.Words = append(b.Words, other.Words...)
	b.Truncated = append(b.Truncated, other.Truncated...)
	for _, end := range other.Ends {
		b.Ends = append(b.Ends, base+end)
	}
}

// EncodeWords tokenizes items that are split into words, as the fast tokenizers of transformers do
// with is_split_into_words: each word on its own, with the special tokens of one text around the
// item. A word that the tokenizer drops has no tokens. It runs on up to GOMAXPROCS goroutines and
// returns ctx.Err() soon after ctx is done. A failed item is a TextError.
func (t *Tokenizer) EncodeWords(ctx context.Context, dst *WordBatch, items []Words, opt WordOptions) error {
	dst.reset()
	for i, item := range items {
		if item.Marks != nil && len(item.Marks) != len(item.Texts) {
			panic("tokenizer: Marks has another length than Texts")
		}
		for w, id := range item.Marks {
			if int(id) >= t.info.vocabSize {
				return &TextError{i, fmt.Errorf("word %d is the token %d, which is outside the vocabulary"+
					" (0 to %d)", w, id, t.info.vocabSize-1)}
			}
		}
	}
	err := t.encodeWords(ctx, dst, items, opt)
	if err != nil {
		dst.reset()
	}
	return err
}

// encodeWords lets goroutines take chunks of items in order and joins their results in order.
func (t *Tokenizer) encodeWords(
	ctx context.Context, dst *WordBatch, items []Words, opt WordOptions,
) error {
	chunks := wordChunks(items)
	out, failures := make([]WordBatch, len(chunks)), make([]error, len(chunks))
	var taken atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			i := int(taken.Add(1)) - 1
			if i >= len(chunks) {
				return
			}
			if failures[i] = t.wordChunk(ctx, &out[i], items, chunks[i], opt); failures[i] != nil {
				failed.Store(true)
			}
		}
	}
	var all sync.WaitGroup
	for range min(cap(slots), len(chunks)) - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
	total := 0
	for i, err := range failures {
		if err != nil {
			return err
		}
		total += len(out[i].IDs)
	}
	if total > math.MaxInt32 {
		return &TextError{len(items) - 1, errTooMany}
	}
	for i := range out {
		dst.add(&out[i])
	}
	return nil
}

// wordChunk is a range of items that one call of the library takes.
type wordChunk struct{ from, to, words, bytes int }

// wordChunks cuts items into chunks, of one item at least.
func wordChunks(items []Words) []wordChunk {
	var out []wordChunk
	for i, item := range items {
		size := 0
		for _, text := range item.Texts {
			size += len(text)
		}
		if n := len(out) - 1; n >= 0 && out[n].bytes+size <= chunkBytes &&
			out[n].words+len(item.Texts) <= chunkBytes/4 {
			out[n].to, out[n].words, out[n].bytes = i+1, out[n].words+len(item.Texts), out[n].bytes+size
			continue
		}
		out = append(out, wordChunk{i, i + 1, len(item.Texts), size})
	}
	return out
}

func (t *Tokenizer) wordChunk(
	ctx context.Context, dst *WordBatch, items []Words, c wordChunk, opt WordOptions,
) error {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-slots }()
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.lib.open() {
		return ErrClosed
	}
	stop, release := stopFlag(ctx, c.bytes)
	defer release()
	err := t.words(dst, items, c, opt, stop)
	if errors.Is(err, errStopped) {
		return ctx.Err()
	}
	return err
}

// WordTokens returns a function that appends the tokens of words to ids, each word on its own and
// without special tokens, and for each where they end in ids. No word becomes a reserved token.
func (t *Tokenizer) WordTokens(
	ctx context.Context, reserved []int32,
) func(words []string, ids []int32, ends []int) ([]int32, []int, error) {
	var b WordBatch
	return func(words []string, ids []int32, ends []int) ([]int32, []int, error) {
		opt := WordOptions{NoSpecial: true, Reserved: reserved}
		err := t.EncodeWords(ctx, &b, []Words{{Texts: words}}, opt)
		if err != nil {
			return ids, ends, err
		}
		at := len(ids)
		ids = append(ids, b.IDs...)
		next := 0
		for w := range words {
			for next < len(b.Words) && int(b.Words[next]) == w {
				next++
			}
			ends = append(ends, at+next)
		}
		return ids, ends, nil
	}
}
