package dev

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/bus"
)

// A lane that gets fewer workers than it should says why, so that it is logged.
func TestALaneThatCannotGrowSaysWhy(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := &Cluster{o: Options{StateDir: t.TempDir(), Log: log},
		keeper: newKeeper(filepath.Join(t.TempDir(), stateFile), func() State { return State{} }, log)}
	go c.keeper.run()
	defer c.keeper.close()
	mine, other := bus.Lane{Pool: "mine"}, bus.Lane{Pool: "other"}
	for i := range MaxWorkers {
		c.workers = append(c.workers, &worker{index: i, lane: other})
	}
	if err := c.scaleLane(t.Context(), mine, 1); !errors.Is(err, errNoIndex) {
		t.Errorf("all places are taken: %v", err)
	}
	if err := c.scaleLane(t.Context(), mine, 0); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
	c.workers = c.workers[1:]
	c.o.StateDir = filepath.Join(t.TempDir(), "missing\x00") // nothing can be made in it
	if err := c.scaleLane(t.Context(), mine, 1); err == nil || errors.Is(err, errNoIndex) {
		t.Errorf("no directory for a worker: %v", err)
	}
}
