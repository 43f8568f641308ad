package configpoll

import (
	"cmp"
	"context"
	"time"
)

// The times of a Poller.
const (
	PollEvery  = 30 * time.Second
	FirstRetry = time.Second
	LastRetry  = 30 * time.Second
	Nearest    = 200 * time.Millisecond // between Ask and the question, so that many are one
)

// Poller asks again and again. Make it with NewPoller; Ask may be called by any goroutine.
type Poller struct {
	now   chan struct{} // one value: ask soon
	every time.Duration
}

// NewPoller returns a Poller that asks every so often, and at least as often after a failure; 0:
// PollEvery.
func NewPoller(every time.Duration) *Poller {
	return &Poller{now: make(chan struct{}, 1), every: cmp.Or(every, PollEvery)}
}

// Ask has the Poller ask soon. It returns at once, and many calls cause one question.
func (p *Poller) Ask() {
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// Run calls ask until ctx ends: at once, every so often and after Ask; after a failure first after
// FirstRetry, then twice as long each time up to LastRetry. failed is told of each failure that is
// not the end of ctx, and when ask is called next.
func (p *Poller) Run(
	ctx context.Context, ask func(context.Context) error, failed func(err error, retry time.Duration),
) {
	first, last := min(FirstRetry, p.every), min(LastRetry, p.every)
	retry := first
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.now:
			if !p.rest(ctx) {
				return
			}
		}
		err := ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = first
			timer.Reset(p.every)
			continue
		}
		failed(err, retry)
		timer.Reset(retry)
		retry = min(2*retry, last)
	}
}

// rest waits for Nearest and forgets what was asked for meanwhile: the answer has it. It reports
// whether ctx goes on.
func (p *Poller) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(Nearest):
	}
	select {
	case <-p.now:
	default:
	}
	return true
}
