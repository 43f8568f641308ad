package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

var errNoStore = errors.New("a result is in a payload store, and this gateway has none")

// fetchLocked reads the result of slice i from the payload store, if not too many are being read,
// and has it deleted. Its bytes are held before anything is read. m gets its receipt afterwards;
// without one the worker asks again.
func (q *Queue) fetchLocked(r *request, i int, res *work.Result, m *nats.Msg, now time.Time) error {
	if q.opt.Store == nil {
		return errNoStore
	}
	if err := payload.CheckResultKey(res.ResultRef); err != nil {
		return err
	}
	if res.ResultBytes == 0 || res.ResultBytes > payload.MaxBytes {
		return fmt.Errorf("a stored result of %d bytes; 1 to %d are read",
			res.ResultBytes, int64(payload.MaxBytes))
	}
	select {
	case q.fetches <- struct{}{}:
	default:
		return nil
	}
	s := &r.slices[i]
	if err := r.work.Hold(int64(res.ResultBytes), s.end-s.first); err != nil {
		<-q.fetches
		r.failLocked(i, err, true, now)
		q.discard(res.ResultRef)
		return nil
	}
	s.fetching = true
	q.all.Go(func() {
		defer func() { <-q.fetches }()
		whole, err := q.fetch(r.work.Context(), res)
		q.discard(res.ResultRef)
		if q.fetched(r, i, res, whole, err) {
			q.answer(m, receipts[work.Stored])
		}
	})
	return nil
}

// fetched puts a result in its place that was read, or could not be. It reports whether anybody
// still waited for it.
func (q *Queue) fetched(r *request, i int, res, whole *work.Result, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slices[i]
	s.fetching = false
	if r.over || s.state == done {
		return false
	}
	if err == nil {
		res.Results = whole.Results
		q.putLocked(r, i, res, 0, time.Now())
		return true
	}
	q.metrics.unfetched.Inc()
	q.opt.Log.Warn("a result in the payload store cannot be read", "work_item", res.WorkItemID,
		"worker", res.WorkerID, "key", res.ResultRef, "error", err)
	e := errs.NotStarted("The payload store did not give the request's results", awayRetry)
	e.Cause = err
	r.failLocked(i, e, true, time.Now())
	return true
}

// fetch reads a stored result.
func (q *Queue) fetch(ctx context.Context, res *work.Result) (*work.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	for try := 1; ; try++ {
		data, err := q.opt.Store.Get(ctx, res.ResultRef, int64(res.ResultBytes))
		if err == nil {
			if err = payload.Verify(data, res.ResultSHA256); err != nil {
				return nil, err
			}
			return parseResult(data)
		}
		if try == fetchTries || errors.Is(err, payload.ErrNotFound) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(fetchWait):
		}
	}
}
