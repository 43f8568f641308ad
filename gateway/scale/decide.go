package scale

import (
	"math"
	"time"
)

// Value is what one trigger's query gave. With an Err it gave nothing.
type Value struct {
	Value float64
	Err   error
}

// Scaler decides for one Object. It belongs to one goroutine.
type Scaler struct {
	o        *Object
	failures []int     // of each trigger, in a row
	active   time.Time // when a trigger was active last
	wanted   []want    // within the stabilisation window, the oldest first
}

type want struct {
	at time.Time
	n  int
}

// New returns a scaler of an object.
func New(o *Object) *Scaler { return &Scaler{o: o, failures: make([]int, len(o.Triggers))} }

// tolerance is how far the number may be from what a trigger asks before anything changes, as a
// share: the horizontal pod autoscaler's default.
const tolerance = 0.1

// Decide returns how many workers the lane should have, from its triggers' values, one each, and
// how many it has.
//
// The lane is active while a value is above its activation threshold. From 0 or Idle an active lane
// gets Min workers, and at least one. Above that the largest ceil(value / threshold) counts,
// between Min (at least 1) and Max, and not less than it was within the stabilisation window. An
// inactive lane stays as it is for Cooldown after its last activity, and goes to Idle, or to Min,
// or to 0. A trigger that has failed too often in a row asks for Fallback workers; without a
// fallback nothing goes down while one fails.
func (s *Scaler) Decide(values []Value, current int, now time.Time) int {
	o := s.o
	active, desired, failing := false, 0, false
	for i, t := range o.Triggers {
		if values[i].Err != nil {
			s.failures[i]++
			failing = true
			if o.Failures > 0 && s.failures[i] >= o.Failures {
				desired = max(desired, o.Fallback)
				active = active || o.Fallback > 0
			}
			continue
		}
		s.failures[i] = 0
		v := values[i].Value
		active = active || v > t.Activation
		desired = max(desired, asked(v, t.Threshold, current))
	}
	least := max(o.Min, 1)
	if active {
		s.active = now
	}
	if s.active.IsZero() {
		s.active = now.Add(-o.Cooldown) // nothing was active yet: there is nothing to wait out
	}
	floor := o.Min
	if o.Idle >= 0 {
		floor = o.Idle
	}
	switch {
	case active && current <= floor && current < least:
		desired = max(least, min(desired, o.Max)) // KEDA makes the first, and the autoscaler the rest
	case !active && floor < least && now.Sub(s.active) >= o.Cooldown:
		if failing {
			return current
		}
		s.wanted = nil
		return floor
	case !active && current <= floor:
		return floor
	}
	desired = min(max(desired, least), o.Max)
	if failing && o.Failures == 0 {
		desired = max(desired, current)
	}
	return s.stable(desired, current, now)
}

// asked returns how many workers a value asks for. Around what there is a small difference is none.
func asked(value, threshold float64, current int) int {
	if current > 0 && math.Abs(value/(threshold*float64(current))-1) <= tolerance {
		return current
	}
	return int(min(math.Ceil(max(value, 0)/threshold), 1<<20))
}

// stable returns the largest number that was wanted within the window, and at most what there is if
// less is wanted now.
func (s *Scaler) stable(n, current int, now time.Time) int {
	s.wanted = append(s.wanted, want{now, n})
	for len(s.wanted) > 1 && now.Sub(s.wanted[0].at) > s.o.Down {
		s.wanted = s.wanted[1:]
	}
	if n >= current {
		return n
	}
	most := n
	for _, w := range s.wanted {
		most = max(most, w.n)
	}
	return min(most, current)
}
