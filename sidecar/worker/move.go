package worker

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/sidecar/rank"
)

// maxFormer bounds the lanes that were left and whose messages may still be settled. Work that is
// longer in hand goes to another worker too.
const maxFormer = 8

// serve makes this worker serve a client's pool, or its own for "". What was pulled and is not in
// the server goes back to the lane that is left; what is in the server is answered from here.
func (c *core) serve(pool string) {
	if pool == "" {
		pool = c.home.Pool
	}
	if pool == c.lane.Pool || c.draining || !c.connected {
		return
	}
	c.do.log("warn", "this worker serves another pool now: "+pool, nil, nil)
	c.giveBackQueued()
	for _, q := range c.queues {
		c.close(q)
		q.left, q.gen = true, c.gen
	}
	clear(c.queues)
	clear(c.hot)
	if c.sure {
		c.former = append(c.former, c.gen)
		c.former = c.former[max(0, len(c.former)-maxFormer):]
	}
	c.gen++
	c.late, c.sure, c.created = nil, false, time.Time{}
	c.lane.Pool = pool
	c.peers = rank.New(c.lane, c.self)
	c.discovered = c.now.Add(discoverFor)
	c.beat.soon, c.dirty = true, true
	c.do.moved()
	c.listed = c.now
	c.do.list()
}

// bucketGrace is how long a worker stays in a pool while there is no bucket: gateways put back what
// was in it.
const bucketGrace = 3 * time.Second

// follow has the worker serve the pool that the bucket says, until ctx ends.
func (w *Worker) follow(ctx context.Context) {
	var missing time.Time
	err := w.pools.Follow(ctx, nil, func(v lease.View, err error) {
		switch {
		case err != nil: // the broker is away, or does not say
			missing = time.Time{}
			return
		case !v.Epoch.IsZero():
			missing = time.Time{}
		case missing.IsZero():
			missing = time.Now()
			return
		case time.Since(missing) < bucketGrace:
			return
		}
		pool, pins := "", []string(nil)
		if p := v.Table.Of(w.c.ID); p != nil && v.Now().Before(p.Ends()) {
			pool, pins = p.Spec.Name, p.Spec.Pinned
		}
		w.post(func() {
			w.core.serve(pool)
			w.core.pin(pins)
		})
	})
	if err != nil {
		w.c.Log.Error("the pools of clients are not followed", "error", err)
	}
}
