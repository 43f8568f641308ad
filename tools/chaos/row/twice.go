package row

import (
	"context"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// The count of gateways' replies to results, and its labels for results of slices that had one.
const (
	receipts  = "sie_worker_receipts_total"
	again     = `state="duplicate"`
	forNobody = `state="unknown"`
)

// twice counts slices that were run again though they had a result. A sidecar's count ends with its
// process, so it is read often.
type twice struct {
	first, last map[int]float64 // by process
}

// sampleTime is the time between two looks at the sidecars' counts.
const sampleTime = 200 * time.Millisecond

// countTwice counts until ctx ends; the returned channel then gives the count.
func (s *Setup) countTwice(ctx context.Context) <-chan int {
	out := make(chan int, 1)
	c := twice{first: map[int]float64{}, last: map[int]float64{}}
	c.look(s)
	go func() {
		for wait(ctx, sampleTime) == nil {
			c.look(s)
		}
		c.look(s)
		n := 0.0
		for pid, v := range c.last {
			n += v - c.first[pid]
		}
		out <- int(n)
	}()
	return out
}

// received counts the work messages that each worker took so far, by its id.
func (s *Setup) received() map[string]float64 {
	state, err := s.Cluster.State()
	if err != nil {
		return nil
	}
	out := map[string]float64{}
	for _, w := range state.Workers {
		if v, err := rig.Metric(w.MetricsURL, "sie_worker_messages_received_total"); err == nil {
			out[w.ID] = v
		}
	}
	return out
}

// busiest returns a target of the same role: of a worker, the one that took most of the work since
// the row began. To hurt one that has none would prove nothing.
func (e *Env) busiest(t rig.Target) rig.Target {
	if t.Role != rig.Server && t.Role != rig.Sidecar {
		return t
	}
	state, err := e.Cluster.State()
	if err != nil {
		return t
	}
	now, most := e.received(), 0.0
	for i, w := range state.Workers {
		if n := now[w.ID] - e.before[w.ID]; n > most {
			t.Index, most = i, n
		}
	}
	return t
}

// look reads the counts of the sidecars that answer. Those of a process that begins later count
// from nothing.
func (c *twice) look(s *Setup) {
	state, err := s.Cluster.State()
	if err != nil {
		return // it is being replaced
	}
	beginning := len(c.last) == 0
	for _, w := range state.Workers {
		a, errA := rig.Metric(w.MetricsURL, receipts, again)
		b, errB := rig.Metric(w.MetricsURL, receipts, forNobody)
		if errA != nil || errB != nil {
			continue // it is dead or frozen
		}
		if beginning {
			c.first[w.SidecarPID] = a + b
		}
		c.last[w.SidecarPID] = a + b
	}
}
