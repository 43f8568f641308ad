package model

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// Metrics show models that a reload removed until they are unloaded. Several such models in use do
// not make a scrape fail.
func TestMetricsOfRemovedModels(t *testing.T) {
	sparse := golden.Open(t, "splade-bert").Dir
	r := start(t, held(3), []string{mean, cls},
		entry(t, "review/sparse", sparse, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	all := r.snapshot.Load().catalog
	loaded := func(id string) float64 {
		t.Helper()
		got, err := r.opt.Metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			for _, m := range f.Metric {
				if f.GetName() == "sie_model_loaded" && strings.Contains(fmt.Sprint(m.Label), id) {
					return m.Gauge.GetValue()
				}
			}
		}
		return -1
	}
	for _, id := range []string{mean, cls, "review/sparse"} {
		must(t, r.Preload(t.Context(), id))
	}
	done := make(chan error)
	// two of three items: they stay in the queue and hold their models
	for _, id := range []string{cls, "review/sparse"} {
		q := &Request{Model: id, Texts: words(2)}
		if id != cls {
			q.OutputTypes = []string{"sparse"}
		}
		go func() {
			_, err := r.Encode(t.Context(), q)
			done <- err
		}()
		r.queued(id, 2)
	}
	one, _ := all.Select([]string{mean})
	_, err := r.SetCatalog(one)
	must(t, err)
	for _, id := range []string{mean, cls, "review/sparse"} {
		if v := loaded(id); v != 1 {
			t.Errorf("%s is in use and counts as %v", id, v)
		}
	}
	_, err = r.SetCatalog(all)
	must(t, err)
	if v := r.ofModel("sie_queue_depth", cls); v != 2 {
		t.Errorf("a queue of 2 counts as %v", v)
	}
	_, err = r.SetCatalog(one)
	must(t, err)
	for _, m := range []string{cls, "review/sparse"} {
		r.loaded.Range(func(_, l any) bool {
			if l := l.(*Model); l.name == m {
				for _, v := range l.recorded() {
					v.Queue.Close(batch.ErrClosed)
				}
			}
			return true
		})
	}
	for range 2 {
		if err := <-done; err == nil {
			t.Error("a request outlived its queue")
		}
	}
	for _, m := range []string{cls, "review/sparse"} {
		for loaded(m) == 1 {
			runtime.Gosched()
		}
		if v := loaded(m); v != -1 {
			t.Errorf("%s is gone from the catalog and from memory, and counts as %v", m, v)
		}
	}
	r.seen.Range(func(name, _ any) bool { // otherwise names would accumulate with every reload
		if name != mean {
			t.Errorf("the name of %s is kept", name)
		}
		return true
	})
	must(t, r.Preload(t.Context(), mean))
	if key := r.key(r.describe(mean)); !r.models.Unload(key) {
		t.Error("nothing to unload")
	}
	for r.state(mean) != registry.Available {
		runtime.Gosched()
	}
	if v := loaded(mean); v != 0 {
		t.Errorf("a model of the catalog that was unloaded counts as %v", v)
	}
}

// A message never shows a need that looks met.
func TestMessagesOfTooLittleMemory(t *testing.T) {
	const mib = 1 << 20
	for _, e := range []shortage{
		{need: 44*mib - 1, free: 44*mib - 2, total: 44*mib - 2, budget: true},
		{need: mib/2 + 1, free: mib / 2, total: mib, budget: true},
		{need: 44*mib + 2, total: 44*mib + 1, neverFits: true},
		{need: 7*mib + 5, free: 7*mib + 4, total: 9 * mib},
	} {
		e.device, e.what = "this machine", "its weights need"
		var need, have int64
		_, err := fmt.Sscanf(strings.NewReplacer("it has ", "").Replace(e.Error()),
			"out of memory on this machine: its weights need about %d MiB and %d", &need, &have)
		if err != nil || need <= have {
			t.Errorf("%s: %d of %d, %v", e.Error(), need, have, err)
		}
	}
}
