package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/testrig"
)

// The process ends within its time, even if what it closes never ends.
func TestClosingIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		takes, left, want time.Duration
		warns             bool
	}{
		"at once":                       {0, 25 * time.Second, 0, false},
		"in time":                       {20 * time.Second, 25 * time.Second, 20 * time.Second, false},
		"never":                         {1000 * time.Hour, 25 * time.Second, 25 * time.Second, true},
		"a little, and no time is left": {closeGrace / 2, 0, closeGrace / 2, false},
		"never, and no time is left":    {1000 * time.Hour, -time.Hour, closeGrace, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &testrig.Log{}
				start := time.Now()
				closeBy(start.Add(c.left), "models", slog.New(slog.NewTextHandler(log, nil)),
					func() { time.Sleep(c.takes) })
				if got := time.Since(start); got != c.want ||
					strings.Contains(log.String(), "open=models") != c.warns {
					t.Errorf("took %v, want %v; log %q", got, c.want, log.String())
				}
				time.Sleep(c.takes)
			})
		})
	}
}

type slowServer struct{}

func (slowServer) Shutdown(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := drain(slowServer{}, start.Add(3*time.Second)); err == nil ||
			time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
