package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/ipcclient"
	"github.com/sie-engine/sie/weights/payload"
)

// The bounds of calls of the payload store.
const (
	storeTries   = 3
	storeWait    = 200 * time.Millisecond // after a try that failed
	storeTimeout = 30 * time.Second       // of all tries
	storeRetry   = 2 * time.Second        // the Retry-After of requests that it failed
	discardsTime = 3 * time.Second        // at the end, for what is to be deleted
)

// errPayload is the error of a payload that is not what its work item says.
var errPayload = errors.New("the payload is not that of its work item")

// fetch reads a slice's payload and puts it into its message.
func (w *Worker) fetch(s *slice) {
	it := s.item
	begun := w.core.now
	w.job(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		data, err := w.payload(ctx, it)
		w.c.Metrics.Fetched(time.Since(begun), len(data), err)
		w.post(func() { w.core.fetched(s, data, float64(time.Since(begun))/float64(time.Millisecond), err) })
	})
}

// payload returns the message of a work item with its payload in it.
func (w *Worker) payload(ctx context.Context, it work.Item) ([]byte, error) {
	if w.c.Store == nil {
		return nil, errors.New(
			"the work's texts are in a payload store, and this sidecar has none: set SIE_PAYLOAD_STORE_URL")
	}
	limit := int64(maxPayloadBytes)
	if it.PayloadBytes > 0 && it.PayloadBytes < maxPayloadBytes {
		limit = int64(it.PayloadBytes)
	}
	var raw []byte
	err := tries(ctx, func() (err error) {
		raw, err = w.c.Store.Get(ctx, it.PayloadRef, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := payload.Verify(raw, it.PayloadSHA256); err != nil {
		return nil, err
	}
	var p work.Payload
	if _, err := p.UnmarshalMsg(raw); err != nil {
		return nil, fmt.Errorf("%w: %.100q: %w", errPayload, it.PayloadRef, err)
	}
	it.Attach(&p)
	return it.MarshalMsg(nil)
}

// tries calls f until it succeeds, there is no such payload, or it failed storeTries times.
func tries(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == storeTries || errors.Is(err, payload.ErrNotFound) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(storeWait):
		}
	}
}

// store puts a result into the payload store.
func (w *Worker) store(s *slice, key string, data []byte) {
	w.storing[key] = true
	w.job(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		reference := &work.Result{
			ResultRef: key, ResultSHA256: payload.Sum(data), ResultBytes: uint64(len(data)),
		}
		err := tries(ctx, func() error { return w.c.Store.Put(ctx, key, data) })
		w.post(func() {
			delete(w.storing, key)
			w.core.stored(s, reference, data, err)
		})
	})
}

// discard deletes a stored result.
func (w *Worker) discard(key string) {
	if w.c.Store == nil {
		return
	}
	w.discards.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if err := w.c.Store.Delete(ctx, key); err != nil {
			w.c.Metrics.Count("payload_leftovers", "")
			w.c.Log.Warn("a stored result was not deleted; it is removed when it is old",
				"key", key, "error", err)
		}
	})
}

// endDiscards deletes the results whose storing ended when nobody read events any more, and waits
// for what is being deleted. The jobs that store must have ended.
func (w *Worker) endDiscards() {
	for key := range w.storing {
		w.discard(key)
	}
	done := make(chan struct{})
	go func() { w.discards.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(discardsTime):
	}
}

// ranOut handles the end of a RunBatch on the goroutine of Run.
func (w *Worker) ranOut(call string, rest *ipc.BatchOutcome, err error) {
	if errors.Is(err, ipcclient.ErrLost) {
		return // whether the server died is told later, by Up or Dead
	}
	for i := range rest.Outcomes {
		w.core.outcome(call, &rest.Outcomes[i])
	}
	w.core.ended(call, err)
}
