package server

import (
	"time"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// fullAnswers holds the prepared refusals of requests that find every queue full: one for queues
// that are full by items, and one per Retry-After in seconds for queues that are full by waiting
// time.
type fullAnswers struct {
	items *dialect.Prepared
	slow  [maxRetry]*dialect.Prepared
}

// maxRetry is one more than the largest Retry-After, in seconds.
const maxRetry = 61

func prepareFull(items int, wait time.Duration) (f fullAnswers) {
	f.items = dialect.Prepare(errs.FullQueue(items, 1, items))
	for s := range f.slow {
		f.slow[s] = dialect.Prepare(errs.SlowQueue(wait, time.Duration(s)*time.Second))
	}
	return f
}

// answer returns the refusal for a full queue, or nil if there is room.
func (f *fullAnswers) answer(retry time.Duration, full bool) *dialect.Prepared {
	switch {
	case !full:
		return nil
	case retry == 0:
		return f.items
	}
	return f.slow[min((retry+time.Second-1)/time.Second, maxRetry-1)]
}
