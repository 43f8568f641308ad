package row

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/tools/chaos/load"
)

// The times of a row.
const (
	steadyTime = 2500 * time.Millisecond // of load before the fault; the first half second is not counted
	stopTime   = 40 * time.Second        // of SIGSTOP
	shortStop  = 8 * time.Second
	afterTime  = 15 * time.Second // at most, until the full rate is there again
	tailTime   = 2 * time.Second  // of load after it
	// leastSteady is the share of the pace that must be answered before the fault.
	leastSteady = 0.75
)

// Run runs one row and returns its line. An error is the harness's, not the cluster's.
func (s *Setup) Run(ctx context.Context, r *Row) Line {
	e := &Env{Setup: s, Stop: stopTime, Short: s.Short}
	begin := time.Now()
	if s.Short {
		e.Stop = shortStop
	}
	var l Line
	var err error
	if r.Alone != nil {
		l, err = r.Alone(ctx, e)
		l.Row, l.Steps = r.Name, e.Window.Steps
	} else {
		l, err = s.steady(ctx, e, r)
	}
	l.Topology = r.Topology
	l.Broken = append(l.Broken, e.Broken...)
	switch {
	case errors.Is(err, errNotHere):
		l.NotRun = err.Error()
	case err != nil:
		l.Broken = append(l.Broken, "the row could not be run to its end: "+err.Error())
		s.Spoiled = true
	}
	held, err := s.settle(ctx, s.held)
	if err != nil {
		l.Broken = append(l.Broken, err.Error())
		s.Spoiled = true
	}
	l.TookS = time.Since(begin).Seconds()
	if held.Processes != nil {
		for name, p := range held.Processes {
			if s.held.Processes[name].PID != p.PID {
				s.held.Processes[name] = p
			}
		}
	}
	return l
}

// steady runs a row's fault under the steady load.
func (s *Setup) steady(ctx context.Context, e *Env, r *Row) (Line, error) {
	p, err := s.plan(r.Name, r.Follow)
	if err != nil {
		return Line{Row: r.Name}, err
	}
	counting, counted := context.WithCancel(ctx)
	defer counted()
	again := s.countTwice(counting)
	e.before = s.received()
	begin := time.Now()
	work, err := load.Start(p)
	if err != nil {
		return Line{Row: r.Name}, err
	}
	err = wait(ctx, steadyTime)
	before := Rate(begin.Add(500*time.Millisecond), time.Now(), work.Records(0))
	if err == nil {
		err = r.Fault(ctx, e)
	}
	e.Window.Back = time.Now()
	for err == nil && time.Since(e.Window.Back) < afterTime &&
		toFullRate(e.Window.Back, before, work.Records(0)) < 0 {
		err = wait(ctx, rateStep)
	}
	if err == nil {
		err = wait(ctx, tailTime)
	}
	e.note("no more load")
	records, stopErr := work.Stop()
	e.note("the last answer")
	l := Judge(r.Name, r.Demand, e.Window, before, records)
	if before < leastSteady*rawRate {
		l.Broken = append(l.Broken,
			fmt.Sprintf("before the fault %.1f raw requests a second were answered, of %.0f",
				before, rawRate))
	}
	counted()
	l.RunTwice = <-again
	return l, errors.Join(err, stopErr)
}
