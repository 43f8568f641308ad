package ipc

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Every function runs once and at once, however many others run; at most maxIdle goroutines are
// kept, and none after the end.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all, done sync.WaitGroup
		c := newCrew(ctx, &all)
		rng := rand.New(rand.NewPCG(1, 2))
		var ran, running atomic.Int32
		for range 50 {
			n, before := rng.IntN(3*maxIdle), ran.Load()
			hold := make(chan struct{})
			for range n {
				done.Add(1)
				c.run(func() {
					defer done.Done()
					ran.Add(1)
					running.Add(1)
					<-hold
					running.Add(-1)
				})
			}
			synctest.Wait()
			if ran.Load()-before != int32(n) || running.Load() != int32(n) {
				t.Fatalf("%d of %d run", ran.Load()-before, n)
			}
			close(hold)
			done.Wait()
			synctest.Wait()
			if idle := c.idle.Load(); idle > maxIdle || idle < min(int32(n), maxIdle) {
				t.Fatalf("%d goroutines are kept after %d", idle, n)
			}
		}
		cancel()
		all.Wait() // a goroutine that is left would hold the test up for ever
	})
}

// A function runs on a goroutine that is kept, if there is one.
func TestCrewKeepsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		c := newCrew(ctx, &all)
		for range 100 {
			c.run(func() { time.Sleep(time.Millisecond) })
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if n := c.idle.Load(); n != 1 {
				t.Fatalf("%d goroutines are idle, not one", n)
			}
		}
		cancel()
		all.Wait()
	})
}
