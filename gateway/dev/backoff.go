package dev

import "time"

// The time between the end of a process and its next start doubles from the first to the longest,
// and begins anew after a process that ran for the steady time.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 10 * time.Second
	steady      = 30 * time.Second
)

// backoff computes the waits before the starts of one process. The zero value is ready.
type backoff struct{ last time.Duration }

// next returns the wait after a process that ran for up.
func (b *backoff) next(up time.Duration) time.Duration {
	if b.last == 0 || up >= steady {
		b.last = firstWait
	} else {
		b.last = min(2*b.last, longestWait)
	}
	return b.last
}
