package queue

import "time"

// window decides how much of a line's work may be published and unanswered, so that the workers
// never wait for work and little waits in the stream, where nobody can overtake it. What waits
// beyond it waits in the gateway, where tenants take turns.
//
// It follows what the answers tell: for how long a slice lay in the stream, and for how long a
// worker had it. Work in the stream for less than a device batch is what the workers need to be
// busy; more is shed. Where some slices are taken at once and others lie there while the workers
// have enough in hand, half a batch on the average is too much. Several gateways see the same
// stream, and so share it without knowing of each other. A window belongs to its line's lock.
type window struct {
	size    int           // bytes of items
	grown   bool          // something waited in the stream once: it grows slowly from then on
	batch   time.Duration // of a device, smoothed; 0: not known
	changed time.Time     // slices that were sent before tell nothing of the size
	first   time.Time     // when the first slice of this round was answered; zero: none was
	slices  time.Duration // that were answered in this round
	least   stay          // of the one that lay in the stream for the shortest time
	all     stay          // of all of them together
}

// stay is where a slice was for how long: in the stream, and at its worker.
type stay struct{ lag, ran time.Duration }

// part returns the part of what is out that leaves no more than some time of waiting in the stream.
func (s stay) part(waiting time.Duration) float64 {
	return max(float64(s.ran+waiting)/float64(s.ran+s.lag), 0.25)
}

const (
	firstWindow = 8 << 10
	leastWindow = leastCost // a slice goes in any case when no other is out
	mostWindow  = 1 << 30
	leastLag    = 10 * time.Millisecond
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
		w.first, w.least, w.slices, w.all = now, stay{lag, ran}, 0, stay{}
	}
	if lag < w.least.lag {
		w.least = stay{lag, ran}
	}
	w.slices, w.all = w.slices+1, stay{w.all.lag + lag, w.all.ran + ran}
	allowed := w.allowed()
	if now.Sub(w.first) < allowed {
		return false
	}
	size, limited := w.size, share.Limited()
	mean, part := stay{w.all.lag / w.slices, w.all.ran / w.slices}, 1.0
	uneven := mean.lag - w.least.lag // no lag of messages, which all have
	if w.batch == 0 || mean.ran < w.batch*3/2 {
		uneven = 0 // the workers would take more
	}
	switch {
	case w.least.lag > allowed:
		part = w.least.part(allowed / 2)
	case uneven > allowed/2:
		part = mean.part(allowed / 4)
	}
	switch {
	case part < 1: // of what is out
		w.size = max(int(float64(min(size, share.Out()))*part), leastWindow)
		w.grown = true
	case w.least.lag > allowed/2, uneven > allowed/4:
	case limited && w.grown:
		w.size = min(size+max(size/8, leastWindow), mostWindow)
	case limited:
		w.size = min(size+size/4, mostWindow)
	}
	w.changed, w.first = now, time.Time{}
	return w.size != size
}
