package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// errScaling is returned for a command to scale while another is under way.
var errScaling = errors.New("another scale is under way: wait for it")

// errAutoscale is returned for a command to scale where the autoscaler does.
var errAutoscale = errors.New("the cluster scales itself (--autoscale): requests and pools start workers")

// Scale makes the number of workers n. New workers are ready when it returns; of those that go, the
// last came last, and each drains first. One call at a time.
func (c *Cluster) Scale(ctx context.Context, n int) (err error) {
	var added []*worker
	if c.o.Autoscale {
		return errAutoscale
	}
	if n < 0 || n > MaxWorkers {
		return fmt.Errorf("%d workers: between 0 and %d are allowed", n, MaxWorkers)
	}
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	default:
		return errScaling
	}
	defer c.keeper.flush()
	defer func() {
		for _, w := range slices.Backward(added) {
			if err != nil { // not all that were added are ready
				c.remove(w)
			}
		}
	}()
	var leaving sync.WaitGroup
	for _, w := range c.snapshot() {
		if w.index >= n {
			leaving.Go(func() { c.remove(w) })
		}
	}
	leaving.Wait()
	for i := len(c.snapshot()); i < n; i++ {
		w, err := c.addServer(i, c.o.Lanes[i%len(c.o.Lanes)])
		if err != nil {
			return err
		}
		added = append(added, w)
	}
	for _, w := range added {
		if err := c.ready(ctx, Server, w.server); err != nil {
			return err
		}
		if err := c.addSidecar(w); err != nil {
			return err
		}
	}
	for _, w := range added {
		if err := c.ready(ctx, Sidecar, w.sidecar); err != nil {
			return err
		}
	}
	return nil
}

// remove drains a worker: its sidecar, which finishes or gives back its work, then its server.
func (c *Cluster) remove(w *worker) {
	if w.sidecar != nil {
		end(c.now, w.sidecar)
	}
	end(c.now, w.server)
	c.mu.Lock()
	c.workers = slices.DeleteFunc(c.workers, func(x *worker) bool { return x == w })
	c.mu.Unlock()
	if err := os.RemoveAll(c.o.path("run", fmt.Sprintf("w%d", w.index))); err != nil {
		c.o.Log.Warn("cannot remove a worker's directory", "error", err)
	}
}
