package model

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/registry"
)

// Preload waits for the adapter that requests get if they name none: the first of them has it.
func TestPreloadWaitsForTheAdapter(t *testing.T) {
	r := start(t, nil, nil, adapted(t, "ce", copyModel(t, "rerank-sigmoid"),
		"rerank-sigmoid", "cross_encoder", "tasks: {score: {}}"))
	score := func(model string) float64 {
		t.Helper()
		must(t, r.Preload(t.Context(), model))
		res, err := r.Encode(t.Context(),
			&Request{Model: model, Query: "the cat", Texts: []string{"the mat"}})
		if err != nil {
			t.Fatal(model, err)
		}
		return res.Scores[0]
	}
	if tuned, plain := score("ce:tuned"), score("ce"); tuned == plain {
		t.Errorf("with the adapter and without: %v", plain)
	}
}

// A wait for an adapter ends with the load's failure, with its bound, and with its context.
func TestHowAWaitForAnAdapterEnds(t *testing.T) {
	s, key, m := adapterSet(t)
	s.mu.Lock()
	s.failed[key("all")] = &registry.Failure{
		Err: errors.New("broken"), Class: "CONFIG", Attempts: 1, Until: time.Now().Add(time.Hour)}
	s.mu.Unlock()
	if err := s.await(t.Context(), key("all"), m); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a failed load: %v", err)
	}
	s.mu.Lock()
	clear(s.failed)
	s.mu.Unlock()
	for _, name := range []string{"attention", "all"} { // no room for a third
		defer s.release(s.take(t, key(name), m))
	}
	s.model.host.opt.LoadTimeout = time.Nanosecond
	if err := s.await(t.Context(), key("saved"), m); err == nil || errs.As(err).Code != errs.LoRALoading {
		t.Errorf("behind the bound: %v", err)
	}
	s.model.host.opt.LoadTimeout = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, key("saved"), m); !errors.Is(err, context.Canceled) {
		t.Errorf("without a context: %v", err)
	}
}
