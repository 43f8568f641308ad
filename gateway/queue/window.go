package queue

import "time"

// window decides how much of a line's work may be published and unanswered, so that the workers
// never wait for work and little waits in the stream, where nobody can overtake it. What waits
// beyond it waits in the gateway, where tenants take turns.
//
// It follows what the answers tell: for how long a slice lay in the stream, and for how long a
// worker had it. Work in the stream for less than a device batch is what the workers need to be
// busy; more is shed. Several gateways see the same stream, and so share it without knowing of each
// other. A window belongs to its line's lock.
type window struct {
	size    int           // bytes of items
	grown   bool          // something waited in the stream once: it grows slowly from then on
	batch   time.Duration // of a device, smoothed; 0: not known
	changed time.Time     // slices that were sent before tell nothing of the size
	first   time.Time     // when the first slice of this round was answered; zero: none was
	lag     time.Duration // the least time in the stream in this round
	ran     time.Duration // the time at its worker of the slice with that lag
}

const (
	firstWindow = 32 << 10
	leastWindow = leastCost // a slice goes in any case when no other is out
	mostWindow  = 1 << 30
	leastLag    = 5 * time.Millisecond
	mostLag     = 250 * time.Millisecond
	unknownLag  = 25 * time.Millisecond // where no worker tells how long a batch takes
	batchWeight = 0.1                   // of a new measurement
)

// allowed returns for how long work may lie in the stream: a device batch.
func (w *window) allowed() time.Duration {
	if w.batch == 0 {
		return unknownLag
	}
	return min(max(w.batch, leastLag), mostLag)
}

// load is what a window looks at of a share.
type load interface {
	Out() int
	Limited() bool
}

// answered takes a slice's answer and reports whether the size has changed. sent is when the slice
// was sent, lag how long it lay in the stream, ran how long a worker had it, batch how long a
// device ran it (0: not told). Of the share it takes what is out, and whether others waited for
// room.
func (w *window) answered(
	sent time.Time, lag, ran, batch time.Duration, share load, now time.Time,
) bool {
	switch {
	case batch <= 0:
	case w.batch == 0:
		w.batch = batch
	default:
		w.batch += time.Duration(batchWeight * float64(batch-w.batch))
	}
	if sent.Before(w.changed) {
		return false
	}
	if w.first.IsZero() {
		w.first, w.lag, w.ran = now, lag, ran
	} else if lag < w.lag {
		w.lag, w.ran = lag, ran
	}
	allowed := w.allowed()
	if now.Sub(w.first) < allowed {
		return false
	}
	size, limited := w.size, share.Limited()
	switch {
	case w.lag > allowed:
		// of what is out: what the workers had in that time, and half of what may wait
		part := float64(w.ran+allowed/2) / float64(w.ran+w.lag)
		w.size = max(int(float64(min(size, share.Out()))*max(part, 0.25)), leastWindow)
		w.grown = true
	case w.lag > allowed/2:
	case limited && w.grown:
		w.size = min(size+max(size/8, leastWindow), mostWindow)
	case limited:
		w.size = min(2*size, mostWindow)
	}
	w.changed, w.first = now, time.Time{}
	return w.size != size
}
