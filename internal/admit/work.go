package admit

import (
	"context"
	"errors"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// ErrClientGone is the cause with which an entrance cancels a request whose client no longer waits
// for the answer.
var ErrClientGone = errors.New("the client closed the connection")

// Work is an admitted request: its context, its deadline and the bytes of its results. One
// goroutine at a time uses it; any goroutine may call Cancel.
type Work struct {
	gate   *Gate // nil: nothing is bounded
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	began  time.Time

	request int64  // bytes of the request itself
	field   string // its client's name for the items
	held    int64  // bytes of its results
	kept    bool   // by the writer of the answer, which releases them
}

// Unbounded returns the work of a caller without a Gate: ctx ends it, and its results are not
// counted. It needs no End.
func Unbounded(ctx context.Context) *Work { return &Work{ctx: ctx, began: time.Now()} }

// Context returns the request's context. It ends when the request is cancelled, with that cause;
// when it has taken longer than Options.Timeout (a 504); or when a drain runs out of time (a
// retryable 503).
func (w *Work) Context() context.Context { return w.ctx }

// Began returns the time from which the request's timings count.
func (w *Work) Began() time.Time { return w.began }

// RequestBytes returns the bytes of the request itself, which its entrance reserved.
func (w *Work) RequestBytes() int64 { return w.request }

// Cancel ends the request's context with a cause. Work without a Gate ends with its own context
// only.
func (w *Work) Cancel(cause error) {
	if w.gate != nil {
		w.cancel(cause)
	}
}

// End ends the request, so that a drain no longer waits for it. The bytes of its results are given
// back unless Keep was called. Call it once.
func (w *Work) End() {
	if w.gate == nil {
		return
	}
	w.stop()
	w.cancel(nil)
	if !w.kept {
		w.Release()
	}
	w.gate.leave()
}

// Hold reserves bytes more for the results, before they are made. items is the number of the
// request's items whose results are then counted completely. Hold refuses the request with a 400 if
// the results never fit, and with a 503 if they do not fit now; both say how many items would fit.
func (w *Work) Hold(bytes int64, items int) error {
	g := w.gate
	if g == nil || w.Take(bytes) {
		return nil
	}
	need, most, others := w.held+bytes, g.opt.MaxHeldBytes-w.request, g.held.Load()-w.held-w.request
	if need > most {
		return errs.AnswerTooLarge(w.field, need, g.opt.MaxHeldBytes, fits(items, need, most))
	}
	return errs.FullQueueAnswer(g.held.Load(), bytes, g.opt.MaxHeldBytes, fits(items, need, most-others))
}

// fits returns how many of items fit into room if all of them together take bytes.
func fits(items int, bytes, room int64) int {
	return int(float64(items) * float64(max(room, 0)) / float64(bytes))
}

// Take counts bytes more for the answer if there is room, and reports whether there was.
func (w *Work) Take(bytes int64) bool {
	if w.gate == nil || !w.gate.take(bytes) {
		return w.gate == nil
	}
	w.held += bytes
	return true
}

// Reserve is Take for bytes that were not planned. Its error is the retryable 503 for which there
// is no room.
func (w *Work) Reserve(bytes int64) error {
	if w.Take(bytes) {
		return nil
	}
	return errs.FullQueueBytes(w.gate.held.Load(), bytes, w.gate.opt.MaxHeldBytes)
}

// Give gives back some of the bytes.
func (w *Work) Give(bytes int64) {
	if w.gate != nil {
		w.gate.Free(bytes)
		w.held -= bytes
	}
}

// Adopt adds bytes that Gate.Reserve counted to those of the results: the answer refers to parts of
// the request, which it keeps in memory.
func (w *Work) Adopt(bytes int64) { w.held += bytes }

// Held returns the bytes that the results and the answer take.
func (w *Work) Held() int64 { return w.held }

// Keep leaves the bytes to the writer of the answer, who calls Release when it is written.
func (w *Work) Keep() { w.kept = true }

// Release gives all bytes back.
func (w *Work) Release() { w.Give(w.held) }
