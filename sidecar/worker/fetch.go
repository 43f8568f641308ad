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

// The bounds of the fetch of a payload.
const (
	maxPayloadBytes = ipc.MaxFrame - 1<<20 // a slice goes to the server in one frame
	fetchTries      = 3
	fetchWait       = 200 * time.Millisecond // after a try that failed
	fetchTimeout    = 20 * time.Second       // of all tries
)

// fetch reads a slice's payload and puts it into its message.
func (w *Worker) fetch(s *slice) {
	it := s.item
	begun := w.core.now
	w.job(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
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
	var raw []byte
	var err error
	for try := range fetchTries {
		if raw, err = w.c.Store.Get(ctx, it.PayloadRef, maxPayloadBytes); err == nil {
			break
		}
		if try == fetchTries-1 || errors.Is(err, payload.ErrNotFound) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(fetchWait):
		}
	}
	if err := payload.Verify(raw, it.PayloadSHA256); err != nil {
		return nil, err
	}
	var p work.Payload
	if _, err := p.UnmarshalMsg(raw); err != nil {
		return nil, fmt.Errorf("the payload %.100q: %w", it.PayloadRef, err)
	}
	it.Items, it.Query, it.PayloadRef, it.PayloadSHA256 = p.Items, p.Query, "", nil
	return it.MarshalMsg(nil)
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
