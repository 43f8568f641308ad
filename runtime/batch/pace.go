package batch

import (
	"math"
	"time"
)

// A Scheduler's pace is the work that one of its devices does in a second. It is measured
// separately for short and long items, because batches of the two share the device when both run.
// It is measured over all queues, because they share the devices.

const (
	paceKeeps = 7.0 / 8 // a new busy period reduces the weight of earlier ones to this part
	// a batch smaller than 1/paceTrusts of a full one does not predict the pace of full ones
	paceTrusts   = 16
	retryLongest = time.Minute
)

// pace is a weighted mean over stretches of work. Longer and newer stretches count more. The zero
// value is unknown.
type pace struct{ work, seconds float64 }

func (p *pace) add(work float64, took time.Duration) {
	p.work = p.work*paceKeeps + work
	p.seconds = p.seconds*paceKeeps + took.Seconds()
}

// rate returns the work done in a second, or 0 while it is unknown.
func (p *pace) rate() float64 {
	if p.seconds <= 0 {
		return 0
	}
	return p.work / p.seconds
}

// busyPeriod measures the work that a device does for one kind over a period in which it always has
// some in flight. Batches overlap, so their own durations cannot be added up; stretches do not
// overlap, and together they cover the time in which the device had work.
type busyPeriod struct {
	running int     // batches in flight
	ahead   float64 // work of the batches in flight
	since   time.Time
	done    float64 // work finished since then
	spoilt  int     // batches in flight that partly ran in a discarded busy period
}

func (s *busyPeriod) begin(work float64, now time.Time) {
	if s.running == 0 {
		*s = busyPeriod{since: now}
	}
	s.running++
	s.ahead += work
}

// end records the end of a batch. If representative is set, the busy period ends and counts towards
// the pace. A failed batch discards the busy period, and so does each batch that was in flight at
// the same time.
func (s *busyPeriod) end(work float64, failed, representative bool, now time.Time, p *pace) {
	s.running--
	s.ahead -= work
	s.done += work
	switch {
	case failed:
		s.spoilt = s.running
		s.since, s.done = now, 0
	case s.spoilt > 0:
		s.spoilt--
		s.since, s.done = now, 0
	case representative && now.After(s.since):
		p.add(s.done, now.Sub(s.since))
		s.since, s.done = now, 0
	}
}

// left estimates from the rate how much of the work in flight is not done yet.
func (s *busyPeriod) left(rate float64, now time.Time) float64 {
	if s.running == 0 {
		return 0
	}
	return max(0, s.ahead-rate*now.Sub(s.since).Seconds())
}

// rateLocked returns the work that one device does in a second for the kind. If that is unknown, it
// returns the other kind's rate; 0 if neither is known.
func (d *Scheduler) rateLocked(c laneKind) float64 {
	if r := d.pace[c].rate(); r > 0 {
		return r
	}
	return d.pace[1-c].rate()
}

// waitLocked predicts how long an item that joins l now would wait for its batch to start. It
// returns false while the pace is unknown.
//
// Three things run before the item: the batches of its kind in flight, the items queued in its
// lane, and as many batches of every other lane of the kind as get their turn until then.
func (d *Scheduler) waitLocked(l *lane, now time.Time) (time.Duration, bool) {
	rate := d.rateLocked(l.kind)
	if rate <= 0 {
		return 0, false
	}
	ahead, batches := l.work, l.batches()
	for _, other := range d.lanes {
		if other != l && other.kind == l.kind {
			ahead += other.work * min(1, (batches+1)/other.batches())
		}
	}
	devices := 0
	for i := range d.devices {
		if c := &d.devices[i]; !c.lost {
			ahead += c.of[l.kind].left(rate, now)
			devices++
		}
	}
	seconds := ahead / (rate * float64(devices))
	return time.Duration(min(seconds, math.MaxInt32) * float64(time.Second)), true
}

// batches estimates how many batches the lane's items make.
func (l *lane) batches() float64 {
	n := float64(l.tokens) / float64(l.q.ctl.cost)
	n = max(n, l.work/l.workLimitLocked())
	return max(1, math.Ceil(n))
}

// The bounds of a batch's predicted run time.
const (
	// a batch of short items is predicted to run for at most 1/runShare of Options.MaxBacklog
	runShare  = 10
	runTokens = 1024 // a batch may always have this many tokens: with fewer a device is used badly
)

// workLimitLocked returns the bound on the work of a batch of more than runTokens tokens. Long
// batches have no bound: they do not delay short ones, and more executors take part when a batch
// has more texts.
func (l *lane) workLimitLocked() float64 {
	rate := l.q.scheduler.rateLocked(short)
	if l.kind == long || l.q.opt.MaxBacklog == 0 || rate == 0 {
		return math.Inf(1)
	}
	return rate * l.q.opt.MaxBacklog.Seconds() / runShare
}

// A long item has more tokens than one slab of the device's executors, and runs for longer than it
// should delay others.
const (
	longTokens = 512
	longRun    = 50 * time.Millisecond
)

// laneKindLocked returns the kind of an item of n tokens.
func (q *Queue) laneKindLocked(n int, work float64) laneKind {
	if n <= longTokens {
		return short
	}
	if r := q.scheduler.rateLocked(short); r > 0 && work/r <= longRun.Seconds() {
		return short
	}
	return long
}

// retryAfter returns the time until the backlog has fallen to half of the limit, between 1 s and
// retryLongest. A client that returns then finds room, and the device still has work.
func retryAfter(wait, limit time.Duration) time.Duration {
	return min(max(wait-limit/2, time.Second), retryLongest)
}
