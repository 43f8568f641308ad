package tokenizer

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// A call of the library takes one chunk. A chunk has enough texts to make the cgo call cheap,
	// and few enough to stay in the cache, to balance the cores and to notice a cancelled context.
	chunkBytes = 32 << 10
	chunkTexts = 256
	// A call with more bytes than this also looks for a cancelled context inside its texts.
	stopBytes = 64 << 10
	// A pooled buffer with more elements than this is not kept.
	maxKept = 1 << 20
)

// slots bounds the threads inside the library, for all tokenizers and callers together.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// Encode tokenizes texts on the calling goroutine. Options sets limits; a failed text is a
// TextError.
func (t *Tokenizer) Encode(dst *Batch, texts []string, opt Options) error {
	return t.run(context.Background(), dst, input{texts: texts}, opt, 1)
}

// EncodePairs tokenizes the pairs (first[i], second[i]) and fills dst.TypeIDs, too. It panics when
// the lengths differ.
func (t *Tokenizer) EncodePairs(dst *Batch, first, second []string, opt Options) error {
	return t.run(context.Background(), dst, pairs(first, second), opt, 1)
}

// EncodeParallel encodes as Encode does, on up to GOMAXPROCS goroutines. Results are in the order
// of texts. It returns ctx.Err() soon after ctx is done, even within a long text.
func (t *Tokenizer) EncodeParallel(ctx context.Context, dst *Batch, texts []string, opt Options) error {
	return t.run(ctx, dst, input{texts: texts}, opt, cap(slots))
}

// EncodePairsParallel encodes pairs as EncodePairs does, on up to GOMAXPROCS goroutines.
func (t *Tokenizer) EncodePairsParallel(
	ctx context.Context, dst *Batch, first, second []string, opt Options,
) error {
	return t.run(ctx, dst, pairs(first, second), opt, cap(slots))
}

// input holds the texts of a call. second is nil unless they are pairs.
type input struct {
	texts, second []string
}

func pairs(first, second []string) input {
	if len(first) != len(second) {
		panic("tokenizer: EncodePairs needs as many second texts as first ones")
	}
	if second == nil {
		second = []string{}
	}
	return input{first, second}
}

func (in input) size(i int) int {
	n := len(in.texts[i])
	if in.second != nil {
		n += len(in.second[i])
	}
	return n
}

// next returns the end of the chunk that starts at text i.
func (in input) next(i int) int {
	size := in.size(i)
	end := i + 1
	for end < len(in.texts) && end-i < chunkTexts && size+in.size(end) <= chunkBytes {
		size += in.size(end)
		end++
	}
	return end
}

// part is one chunk of a parallel call and its result.
type part struct {
	from, to int
	out      *Batch
	err      error
}

var parts = sync.Pool{New: func() any { return new(Batch) }}

func (t *Tokenizer) run(ctx context.Context, dst *Batch, in input, opt Options, workers int) error {
	dst.reset()
	if err := ctx.Err(); err != nil {
		return err
	}
	end := 0
	if len(in.texts) > 0 {
		end = in.next(0)
	}
	var err error
	if workers == 1 || end == len(in.texts) {
		err = t.serial(ctx, dst, in, opt)
	} else {
		err = t.parallel(ctx, dst, in, opt, workers)
	}
	if err != nil {
		dst.reset()
	}
	return err
}

// serial encodes one chunk after another.
func (t *Tokenizer) serial(ctx context.Context, dst *Batch, in input, opt Options) error {
	for i := 0; i < len(in.texts); {
		end := in.next(i)
		if err := t.chunk(ctx, dst, in, i, end, opt); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// parallel lets workers take chunks in order and joins their results in order. It returns the first
// error in the order of texts, so that it does not depend on the workers' timing.
func (t *Tokenizer) parallel(ctx context.Context, dst *Batch, in input, opt Options, workers int) error {
	var all []part
	for i := 0; i < len(in.texts); {
		end := in.next(i)
		all = append(all, part{from: i, to: end})
		i = end
	}
	defer func() {
		for i := range all {
			if all[i].out != nil && cap(all[i].out.IDs) <= maxKept {
				parts.Put(all[i].out)
			}
		}
	}()
	var taken atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			i := int(taken.Add(1)) - 1
			if i >= len(all) {
				return
			}
			p := &all[i]
			p.out = parts.Get().(*Batch)
			p.out.reset()
			if p.err = t.chunk(ctx, p.out, in, p.from, p.to, opt); p.err != nil {
				failed.Store(true)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(workers, len(all)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()

	total := 0
	for i := range all {
		if all[i].err != nil {
			return all[i].err
		}
		total += len(all[i].out.IDs)
	}
	if total > math.MaxInt32 {
		return &TextError{Index: len(in.texts) - 1, Err: errTooMany}
	}
	dst.IDs = grow(dst.IDs, total)
	for i := range all {
		out, base := all[i].out, int32(len(dst.IDs))
		dst.IDs = append(dst.IDs, out.IDs...)
		dst.TypeIDs = append(dst.TypeIDs, out.TypeIDs...)
		dst.Truncated = append(dst.Truncated, out.Truncated...)
		for _, e := range out.Ends {
			dst.Ends = append(dst.Ends, base+e)
		}
	}
	return nil
}

// chunk appends texts [from, to) to dst in one call of the library, plus one more each time the ids
// do not fit into dst.
func (t *Tokenizer) chunk(ctx context.Context, dst *Batch, in input, from, to int, opt Options) error {
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
	size := 0
	for i := from; i < to; i++ {
		size += in.size(i)
	}
	stop, release := stopFlag(ctx, size)
	defer release()
	err := t.encode(dst, in, from, to, opt, stop)
	if errors.Is(err, errStopped) {
		return ctx.Err()
	}
	return err
}

// errStopped is the library's error for a call whose flag was set.
var errStopped = errors.New("stopped")

// neverStop is the flag of calls that are too short to be stopped. It stays 0.
var neverStop uint32

// stopFlag returns a flag that becomes 1 when ctx is done, for a call of that many bytes of text.
// The function that it returns must be called after the call.
func stopFlag(ctx context.Context, bytes int) (*uint32, func()) {
	if bytes <= stopBytes || ctx.Done() == nil {
		return &neverStop, func() {}
	}
	stop := new(uint32)
	undo := context.AfterFunc(ctx, func() { atomic.StoreUint32(stop, 1) })
	return stop, func() { undo() }
}

// grow returns s with room for n more elements.
func grow[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	bigger := make([]T, len(s), max(len(s)+n, 2*cap(s)))
	copy(bigger, s)
	return bigger
}
