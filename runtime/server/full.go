package server

import (
	"time"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// queueFullAnswers holds the prepared refusals of requests that find every queue full: one for
// queues that are full by items, and one per Retry-After in seconds for queues that are full by
// waiting time.
type queueFullAnswers struct {
	items *refusal
	slow  [maxRetry]*refusal
}

// refusal is an error and its prepared answer.
type refusal struct {
	err    error
	answer *dialect.Prepared
}

func prepare(e *errs.Error) *refusal { return &refusal{e, dialect.Prepare(e)} }

// maxRetry is one more than the largest Retry-After, in seconds.
const maxRetry = 61

func prepareFull(items int, wait time.Duration) (f queueFullAnswers) {
	f.items = prepare(errs.FullQueue(items, 1, items))
	for s := range f.slow {
		f.slow[s] = prepare(errs.SlowQueue(wait, time.Duration(s)*time.Second))
	}
	return f
}

// refusal returns the refusal for a full queue, or nil if there is room.
func (f *queueFullAnswers) refusal(retry time.Duration, full bool) *refusal {
	switch {
	case !full:
		return nil
	case retry == 0:
		return f.items
	}
	return f.slow[min((retry+time.Second-1)/time.Second, maxRetry-1)]
}
