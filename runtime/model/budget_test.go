package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/registry"
)

// linked returns another path to a directory.
func linked(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	if err := os.Symlink(dir, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// only returns the worker's catalog with only these ids.
func only(r *rig, ids ...string) *catalog.Catalog {
	r.t.Helper()
	c, missing := r.snapshot.Load().catalog.Select(ids)
	if len(missing) > 0 {
		r.t.Fatal(missing)
	}
	return c
}

// twins adds n entries with the same files under other paths, so each has its own packed weights.
func twins(t *testing.T, r *rig, of string, n int) []string {
	t.Helper()
	c := r.snapshot.Load().catalog
	var ids []string
	for i := range n {
		id := fmt.Sprintf("twin/%s-%d", strings.ReplaceAll(of, "/", "-"), i)
		m := adHoc(t, id, linked(t, golden.Open(t, dirs[of]).Dir))
		var err error
		if c, err = c.With(m); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := r.SetCatalog(c); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestAHundredModelsOnABudgetForTen: concurrent clients use a hundred models in turn. Every request
// gets its model's vectors; some first get a 503 with a time to retry, and come again. The budget
// holds at every moment, and nothing leaks.
func TestAHundredModelsOnABudgetForTen(t *testing.T) {
	bytes, estimate, _ := sizes(t, mean)
	budget := 10*bytes + max(0, estimate-bytes)
	// A load may take as long as the machine needs: only a hang reaches these limits.
	r := start(t,
		func(o *Options) { o.MemoryBudget, o.LoadWait, o.EvictWait = budget, 5*time.Minute, 5*time.Minute },
		[]string{mean, cls, prompts})
	want := map[string][]float32{}
	for _, id := range []string{mean, cls, prompts} {
		want[id] = r.vectors(id, "the text")[0]
	}
	const each = 34
	var ids []string
	source := map[string]string{}
	for i, of := range []string{mean, cls, prompts} {
		for _, id := range twins(t, r, of, each-i%2) {
			ids = append(ids, id)
			source[id] = of
		}
	}
	const clients, rounds = 6, 60
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range rounds {
				id := ids[(client*17+i*7)%len(ids)]
				ask := func() (*Result, error) {
					return r.Encode(t.Context(), &Request{Model: id, Texts: []string{"the text"}})
				}
				res, err := ask()
				for n := 0; chaosRetryable(err) && n < 1000; n++ {
					time.Sleep(time.Millisecond)
					res, err = ask()
				}
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				if got := float32s(res.Rows)[0]; fmt.Sprint(got) != fmt.Sprint(want[source[id]]) {
					t.Errorf("%s gave another model's vector", id)
				}
				if used := r.models.Bytes(); used > budget {
					t.Errorf("%d bytes are packed, the budget is %d", used, budget)
				}
			}
		})
	}
	all.Wait()
}

func TestPinnedModelsStayAndTheBudgetSaysSo(t *testing.T) {
	bytes, estimate, _ := sizes(t, mean)
	r := start(t, func(o *Options) {
		o.MemoryBudget = max(bytes, estimate) + 1000
		o.Pinned = []string{mean}
	}, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	if has := r.devices[0].runner.Stats(); r.metric("sie_device_activation_bytes",
		"cpu") != float64(has.ArenaBytes+has.SlotBytes) || has.ArenaBytes <= 0 {
		t.Errorf("activations: %+v", has)
	}
	e := r.refused(t.Context(), &Request{Model: cls, Texts: words(1)}, errs.ModelLoadFailed, 502)
	if e.Load.Class != "OOM" || !strings.Contains(e.Message, "--memory-budget") ||
		r.state(mean) != registry.Loaded {
		t.Errorf("%+v %v; mean is %s", e.Load, e, r.state(mean))
	}
	if _, err := r.SetCatalog(only(r, cls)); err == nil || !strings.Contains(err.Error(), mean) {
		t.Errorf("a catalog without a pinned model: %v", err)
	}
}

func TestIdleModelsAreUnloaded(t *testing.T) {
	r := start(t, func(o *Options) { o.IdleEvict, o.watch = time.Second, 0 }, []string{mean})
	r.encode(&Request{Model: mean, Texts: words(1)})
	for deadline := time.Now().Add(2 * time.Minute); r.state(mean) != registry.Available; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still loaded")
		}
	}
	r.encode(&Request{Model: mean, Texts: words(1)})
}
