package queue

import "time"

// meter measures how many items a line answers in a second while work waits in its queue. Then the
// workers run as fast as they can; without a backlog the callers set the pace, which says nothing.
//
// Whether there is a backlog tells the time for which the slices waited that are taken now. What is
// merely untaken tells nothing: it may lie in the hands of a worker that is stopped, or wait for a
// broker that is away, while all others are taken at once. Newer seconds count more. A meter
// belongs to its line's lock.
type meter struct {
	items, seconds float64       // measured, older ones with less weight
	lag            time.Duration // for which the slice waited that was taken last
	at             time.Time     // until when seconds are counted; zero: there is no backlog
	takenAt        time.Time     // when the last slice was taken
}

const (
	// work that waits for less is on its way, not a backlog
	backlogAfter = 200 * time.Millisecond
	// less than this tells nothing: the batch that runs may be a long one
	meterTrusts = 500 * time.Millisecond
	// after this time what was measured before counts half
	meterHalves = 2 * time.Second
	// when nothing was taken for so long, nobody knows how long work waits
	meterStalls = 10 * time.Second
)

// taken notes that a slice is taken that waited for a time.
func (m *meter) taken(waited time.Duration, now time.Time) {
	m.advance(now)
	m.lag, m.takenAt = waited, now
	switch {
	case waited < backlogAfter:
		m.at = time.Time{}
	case m.at.IsZero():
		m.at = now
	}
}

// empty notes that no work waits any more.
func (m *meter) empty(now time.Time) {
	m.advance(now)
	m.lag, m.at = 0, time.Time{}
}

// done counts n items that were answered.
func (m *meter) done(n int, now time.Time) {
	if m.advance(now) {
		m.items += float64(n)
	}
}

// advance counts the time until now, and reports whether there is a backlog.
func (m *meter) advance(now time.Time) bool {
	if m.at.IsZero() {
		return false
	}
	m.seconds += max(now.Sub(m.at), 0).Seconds()
	m.at = now
	for m.seconds > 2*meterHalves.Seconds() {
		m.seconds, m.items = m.seconds/2, m.items/2
	}
	return true
}

// rate returns the items answered in a second, or 0 while that is unknown.
func (m *meter) rate(now time.Time) float64 {
	m.advance(now)
	if m.seconds < meterTrusts.Seconds() {
		return 0
	}
	return m.items / m.seconds
}

// waited returns for how long the slices wait that are taken now, 0 if that is not known.
func (m *meter) waited(now time.Time) time.Duration {
	if now.Sub(m.takenAt) > meterStalls {
		return 0
	}
	return m.lag
}
