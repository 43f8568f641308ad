package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Callers of the lane whose workers go, and how long a batch of theirs runs.
const (
	busyCallers = 12
	busyText    = "!sleep=400ms"
)

// scaleDown takes workers away while they run work, and demands that every caller is answered: a
// worker that is told to end finishes what its server has and gives the rest back.
func (h *harness) scaleDown(ctx context.Context) error {
	before := len(h.state.Workers)
	if err := h.scale(ctx, before+3); err != nil { // one more in each lane
		return err
	}
	h.traffic.pause()
	defer h.traffic.resume()
	var answered, failed atomic.Int64
	var first atomic.Value
	busy, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range busyCallers {
		all.Go(func() {
			for n := 0; busy.Err() == nil; n++ { // a request that has begun is waited for
				status, text := h.traffic.send(ctx, encode(fmt.Sprintf("%s %d.%d", busyText, i, n)))
				if status == http.StatusOK {
					answered.Add(1)
				} else if failed.Add(1) == 1 {
					first.Store(fmt.Sprintf("%d %.300s", status, text))
				}
			}
		})
	}
	err := until(ctx, patience, func() error {
		if n := answered.Load(); n < busyCallers {
			return fmt.Errorf("%d requests were answered", n)
		}
		return nil
	})
	begun := time.Now()
	if err == nil {
		err = h.scale(ctx, before)
	}
	took := time.Since(begun)
	cancel()
	all.Wait()
	if n := failed.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d of %d requests failed while workers were taken away, the first with %v", n,
			n+answered.Load(), first.Load())
	}
	if err == nil {
		fmt.Printf("three busy workers were taken away in %.1f s; all of %d requests were answered\n",
			took.Seconds(), answered.Load())
	}
	return err
}
