package worker

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// lateStore is a store whose Put is held, and then stores whatever its context says: an upload that
// the store has taken when the sidecar gives it up.
type lateStore struct {
	payload.Store
	t       *testing.T
	begun   chan struct{} // a Put is held
	release chan struct{} // lets it go on
	inside  atomic.Int64  // calls of Put
	deleted atomic.Int64
}

func (s *lateStore) Put(_ context.Context, key string, data []byte) error {
	s.inside.Add(1)
	defer s.inside.Add(-1)
	s.begun <- struct{}{}
	<-s.release
	return s.Store.Put(context.Background(), key, data)
}

func (s *lateStore) Delete(ctx context.Context, key string) error {
	s.deleted.Add(1)
	if s.inside.Load() > 0 {
		s.t.Error("a result is deleted while it is being stored")
	}
	return s.Store.Delete(ctx, key)
}

// A sidecar that ends while a result is being stored leaves nothing in the store: neither when its
// drain took too long, nor when the request was cancelled and nothing was in hand any more.
func TestNoStoredResultIsLeftAtTheEnd(t *testing.T) {
	for name, cancelled := range map[string]bool{"abandoned": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files, err := payload.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			store := &lateStore{Store: files, t: t, begun: make(chan struct{}), release: make(chan struct{})}
			s, f := bustest.Start(t, nil), startFake(t)
			g := newGateway(t, s, "gw")
			beats := heartbeats(t, g)
			w := startSidecar(t, s, f, "w1", func(c *Config) {
				c.Store, c.transfer, c.DrainTimeout = store, hugeBytes, 50*time.Millisecond
			})
			g.prepare("org/m")
			g.publish("org/m", "r1", func(it *work.Item, _ *nats.Msg) { it.AcceptsRef = true }, "!huge")
			<-store.begun
			if cancelled {
				if err := g.nc.Publish(bus.CancelSubject("gw", "r1"), nil); err != nil {
					t.Fatal(err)
				}
				g.settled(empty0)
			}
			w.stop()
			for h := range beats {
				if h.Terminated {
					break
				}
			}
			close(store.release)
			if err := <-w.ended; err != nil {
				t.Error(err)
			}
			w.ended <- nil
			list, err := os.ReadDir(dir)
			if err != nil || len(list) != 0 || store.deleted.Load() != 1 {
				t.Errorf("%d files are left, %d were deleted, %v", len(list), store.deleted.Load(), err)
			}
		})
	}
}
