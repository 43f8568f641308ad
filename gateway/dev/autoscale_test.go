package dev

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/testrig"
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

// Of each gateway whose metrics do not come the first failure in a row is told, whatever the others
// answer.
func TestASilentGatewayIsToldOnce(t *testing.T) {
	broken := []bool{true, false, true}
	var all []GatewayState
	for i := range broken {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if broken[i] {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer s.Close()
		all = append(all, GatewayState{URL: s.URL, MetricsURL: s.URL})
	}
	var log testrig.Log
	a := &autoscaler{c: &Cluster{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}}
	told := func() (out []int) {
		for _, g := range all {
			out = append(out, strings.Count(log.String(), g.URL))
		}
		return out
	}
	for range 3 {
		a.scrape(t.Context(), time.Now(), all)
	}
	if got := told(); !slices.Equal(got, []int{1, 0, 1}) {
		t.Errorf("told %v times", got)
	}
	broken[0], broken[1] = false, true
	a.scrape(t.Context(), time.Now(), all)
	broken[0] = true
	a.scrape(t.Context(), time.Now(), all)
	if got := told(); !slices.Equal(got, []int{2, 1, 1}) {
		t.Errorf("after one came back and another went: told %v times", got)
	}
}
