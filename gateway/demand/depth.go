package demand

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

// depths is what the queues held when the broker was asked last.
type depths struct {
	of map[bus.Lane]int64
	at time.Time // zero: never
}

// The times and bounds of reading the queues.
const (
	readEvery    = 5 * time.Second
	readTime     = 4 * time.Second
	depthLasts   = 20 * time.Second // then it is not exported any more
	maxConsumers = 100_000
)

// Watch reads the depths of all queues every readEvery, until ctx ends.
func (t *Tracker) Watch(ctx context.Context, js jetstream.JetStream) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		of, err := readDepths(ctx, js)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		if t.answers = err == nil; t.answers {
			t.depths = depths{of, time.Now()}
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Depths returns how many slices the queue of each lane holds, 0 for one without a queue, or
// nothing if what the broker said is too old. The lanes are those that are configured, or else
// those of the workers that are known: not of clients' pools, which have their workers and need no
// others.
func (t *Tracker) Depths() map[bus.Lane]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.depths.at.IsZero() || time.Since(t.depths.at) > depthLasts {
		return nil
	}
	out := map[bus.Lane]int64{}
	for _, l := range t.opt.Lanes {
		out[l] = t.depths.of[l]
	}
	if len(t.opt.Lanes) == 0 {
		for _, w := range t.opt.Fleet().Workers {
			out[w.Home] = t.depths.of[w.Home]
		}
	}
	return out
}

// readDepths asks the broker for the messages of every work consumer, delivered or not.
func readDepths(ctx context.Context, js jetstream.JetStream) (map[bus.Lane]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	out, seen := map[bus.Lane]int64{}, 0
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject(bus.WorkSubjects))
	for s := range streams.Info() {
		if !strings.HasPrefix(s.Config.Name, bus.StreamName("")) {
			continue
		}
		stream, err := js.Stream(ctx, s.Config.Name)
		if err != nil {
			return nil, err
		}
		list := stream.ListConsumers(ctx)
		for c := range list.Info() {
			if l, _, err := bus.ParseWork(c.Config.FilterSubject); err == nil && seen < maxConsumers {
				out[l] += int64(c.NumPending) + int64(c.NumAckPending)
				seen++
			}
		}
		if err := list.Err(); err != nil {
			return nil, err
		}
	}
	return out, streams.Err()
}
