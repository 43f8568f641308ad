package model

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/registry"
)

// A model is full when none of its queues has room, and the worker is full when every loaded model
// is.
func TestFull(t *testing.T) {
	r := start(t, func(o *Options) {
		held(1000)(o)
		o.MaxQueueItems, o.ShortTokens = 2, 32
	}, []string{mean, cls})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	fill := func(id string, items, queued int, options map[string]any) {
		waiting.Go(func() {
			if _, err := r.Encode(ctx, &Request{
				Model: id, Texts: words(items), Options: options,
			}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", id, err)
			}
		})
		r.queued(id, queued)
	}
	check := func(when string, ofMean, ofCLS, all bool) {
		t.Helper()
		_, m := r.Full(mean)
		_, c := r.Full(cls)
		_, a := r.AllFull()
		if _, unknown := r.Full("test/maen"); m != ofMean || c != ofCLS || a != all || unknown {
			t.Errorf("%s: full %v, %v, all %v, unknown %v; want %v, %v, %v",
				when, m, c, a, unknown, ofMean, ofCLS, all)
		}
	}
	check("before a load", false, false, false)
	fill(mean, 1, 1, nil)
	check("with room", false, false, false)
	fill(mean, 1, 2, nil)
	check("one model is full", true, false, true)
	long := r.copy(mean).weights.Own()
	long.Long = true
	if _, err := r.copy(mean).Variant(long); err != nil {
		t.Fatal(err)
	}
	check("the program for long texts has no room for short ones", true, false, true)
	fill(cls, 2, 2, nil)
	check("both are full", true, true, true)
	fill(mean, 1, 3, map[string]any{"pooling": "cls"})
	check("there is room for another pooling", false, true, false)
	cancel()
	waiting.Wait()
	for _, id := range []string{mean, cls} {
		r.models.Unload(r.key(r.describe(id)))
		testrig.Until(r.t, id+" is unloaded", func() bool { return r.state(id) == registry.Available })
	}
	check("unloaded", false, false, false)
	r.loaded.Range(func(key, _ any) bool {
		t.Errorf("%v is kept in memory", key)
		return true
	})
}
