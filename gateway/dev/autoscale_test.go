package dev

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/files"
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

// Series that are too many are an error, and no part of them is taken for all.
func TestTooManySeriesAreAnError(t *testing.T) {
	size := maxMetrics
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x\n", size/2))
	}))
	defer s.Close()
	if text, err := fetch(t.Context(), s.URL); err != nil || len(text) != size {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	size += 2
	if _, err := fetch(t.Context(), s.URL); !errors.Is(err, files.ErrTooLarge) ||
		!strings.Contains(err.Error(), s.URL) {
		t.Errorf("more: %v", err)
	}
}
