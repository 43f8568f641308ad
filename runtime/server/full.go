package server

import (
	"time"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// fullAnswers are the answers to requests that no queue has room for: by items, or, by the seconds
// after which to come again, by the time that queued work takes.
type fullAnswers struct {
	items *dialect.Prepared
	slow  [maxRetry]*dialect.Prepared
}

// maxRetry is one more than the most seconds after which a client is told to come again.
const maxRetry = 61

func prepareFull(items int, wait time.Duration) (f fullAnswers) {
	f.items = dialect.Prepare(errs.FullQueue(items, 1, items))
	for s := range f.slow {
		f.slow[s] = dialect.Prepare(errs.SlowQueue(wait, time.Duration(s)*time.Second))
	}
	return f
}

// answer is the answer for a full queue; nil where there is room.
func (f *fullAnswers) answer(retry time.Duration, full bool) *dialect.Prepared {
	switch {
	case !full:
		return nil
	case retry == 0:
		return f.items
	}
	return f.slow[min((retry+time.Second-1)/time.Second, maxRetry-1)]
}
