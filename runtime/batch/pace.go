package batch

import (
	"math"
	"time"
)

// A device's pace is how much work one of its cards does in a second. It is measured apart for
// short and long items, since the two share the card when both run, and over all queues, since what
// they run is one card's work.

const (
	paceKeeps    = 7.0 / 8 // what a new stretch leaves of the weight of those before it
	paceTrusts   = 16      // a batch of less than this part of a full one says nothing about full ones
	retryLongest = time.Minute
)

// pace is a mean of stretches of work, the longer and the newer ones counting most. The zero value
// is unknown.
type pace struct{ work, seconds float64 }

func (p *pace) add(work float64, took time.Duration) {
	p.work = p.work*paceKeeps + work
	p.seconds = p.seconds*paceKeeps + took.Seconds()
}

// rate is the work of a second, 0 while that is unknown.
func (p *pace) rate() float64 {
	if p.seconds <= 0 {
		return 0
	}
	return p.work / p.seconds
}

// stretch is what a card has done of one class since a moment at which it had some in flight.
// Batches in flight overlap, so that their own durations say little: stretches add up to the time
// in which the card had any.
type stretch struct {
	running int     // batches in flight
	ahead   float64 // their work
	since   time.Time
	done    float64 // work finished since then
	spoilt  int     // batches in flight whose work was in part done in a stretch that is thrown away
}

func (s *stretch) begin(work float64, now time.Time) {
	if s.running == 0 {
		*s = stretch{since: now}
	}
	s.running++
	s.ahead += work
}

// end notes that a batch came back. One that tells the pace ends the stretch. One that failed has
// it thrown away, and so have those that were in flight beside it.
func (s *stretch) end(work float64, failed, tells bool, now time.Time, p *pace) {
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
	case tells && now.After(s.since):
		p.add(s.done, now.Sub(s.since))
		s.since, s.done = now, 0
	}
}

// left is the work in flight that is not done yet, as far as the pace tells.
func (s *stretch) left(rate float64, now time.Time) float64 {
	if s.running == 0 {
		return 0
	}
	return max(0, s.ahead-rate*now.Sub(s.since).Seconds())
}

// rateLocked is the work of a second on one card in the class; the other class's where the own is
// unknown, which is the most there can be; 0 when neither is known.
func (d *Device) rateLocked(c class) float64 {
	if r := d.pace[c].rate(); r > 0 {
		return r
	}
	return d.pace[1-c].rate()
}

// waitLocked predicts how long an item that joined l now would wait for its batch to begin; false
// while nobody can tell.
//
// Before it run: what is in flight of its class, what is queued in its lane, and of every other
// lane of the class as many batches as lanes taking turns give it until then.
func (d *Device) waitLocked(l *lane, now time.Time) (time.Duration, bool) {
	rate := d.rateLocked(l.class)
	if rate <= 0 {
		return 0, false
	}
	ahead, batches := l.work, l.batches()
	for _, other := range d.lanes {
		if other != l && other.class == l.class {
			ahead += other.work * min(1, (batches+1)/other.batches())
		}
	}
	cards := 0
	for i := range d.cards {
		if c := &d.cards[i]; !c.lost {
			ahead += c.of[l.class].left(rate, now)
			cards++
		}
	}
	seconds := ahead / (rate * float64(cards))
	return time.Duration(min(seconds, math.MaxInt32) * float64(time.Second)), true
}

// batches is about how many batches the lane's items make.
func (l *lane) batches() float64 {
	n := float64(l.tokens) / float64(l.q.ctl.cost)
	n = max(n, l.work/l.workLimitLocked())
	return max(1, math.Ceil(n))
}

// The bounds of a batch's predicted run.
const (
	runShare  = 10   // a batch of short items runs for this part of Options.MaxBacklog at most, so that a wait is kept to a tenth
	runTokens = 1024 // but has so many tokens if there are: fewer use a device badly
)

// workLimitLocked is the most work of a batch of more than runTokens tokens. Long items have none:
// a long batch holds up no other, and the more texts it has the more executors take part.
func (l *lane) workLimitLocked() float64 {
	rate := l.q.dev.rateLocked(short)
	if l.class == long || l.q.opt.MaxBacklog == 0 || rate == 0 {
		return math.Inf(1)
	}
	return rate * l.q.opt.MaxBacklog.Seconds() / runShare
}

// A long item is one that more than a slab of the device's executors is needed for, and that runs
// for longer than others should be held up.
const (
	longTokens = 512
	longRun    = 50 * time.Millisecond
)

// classLocked says what an item of n tokens counts as.
func (q *Queue) classLocked(n int, work float64) class {
	if n <= longTokens {
		return short
	}
	if r := q.dev.rateLocked(short); r > 0 && work/r <= longRun.Seconds() {
		return short
	}
	return long
}

// retryAfter is when the backlog will have fallen to half of what may be queued: whoever comes then
// finds room, and the device has not run dry.
func retryAfter(wait, limit time.Duration) time.Duration {
	return min(max(wait-limit/2, time.Second), retryLongest)
}
