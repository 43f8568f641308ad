package model

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// withAdapters returns a rig with the model mean and a model "lo", whose adapter "four" is PEFT's
// rank4.
func withAdapters(t *testing.T, change func(*Options)) (r *rig, key LoRAKey) {
	t.Helper()
	key = LoRAKey{id: filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters", "rank4"), operator: true}
	m := loadtime(t, "lo", withTokenizer(t, "lora-bert", "st-mean", nil), "bert_flash",
		"tasks: {encode: {dense: {dim: 64}}}", fmt.Sprintf("{lora_paths: {four: %s}}", key.id))
	return start(t, change, []string{mean}, m), key
}

func four() *Request {
	return &Request{Model: "lo", Texts: []string{"the cat"}, Options: map[string]any{"lora_id": "four"}}
}

// An adapter's bytes count towards the budget. Another model that is not in use is unloaded for it,
// but never its own model. If there is none, the request gets a 503 other than that for loading.
func TestAdapterNeedsRoom(t *testing.T) {
	bytes, _, _ := sizes(t, mean)
	r, _ := withAdapters(t, nil)
	if _, err := untilLoaded(t,
		func() (*Result, error) { return r.Encode(t.Context(), four()) }); err != nil {
		t.Fatal(err)
	}
	whole := r.size("lo") // including the adapter
	alone := r.copy("lo").weights.Bytes()
	if whole <= alone {
		t.Fatalf("%d bytes with the adapter, %d without", whole, alone)
	}
	for _, c := range []struct {
		what   string
		budget int64
		pinned []string
		code   errs.Code // "": the request succeeds
		stays  bool      // mean
	}{
		{"room for all", whole + bytes, nil, "", true},
		{"one byte too few", whole + bytes - 1, nil, "", false},
		{"one byte too few beside a pinned model", whole + bytes - 1, []string{mean},
			errs.ResourceExhausted, true},
		{"one byte too few for it alone", whole - 1, nil, errs.ResourceExhausted, false},
	} {
		r, _ := withAdapters(t, func(o *Options) { o.Pinned = c.pinned })
		if err := r.Preload(t.Context(), mean); err != nil {
			t.Fatal(err)
		}
		r.opt.MemoryBudget = c.budget
		_, err := untilLoaded(t, func() (*Result, error) { return r.Encode(t.Context(), four()) })
		if e := errs.As(err); c.code == "" && err != nil ||
			c.code != "" && (e == nil || e.Code != c.code || e.RetryAfter <= 0) {
			t.Errorf("%s: %v, want %q", c.what, err, c.code)
		}
		if stays := r.state(mean) == registry.Loaded; stays != c.stays || r.state("lo") != registry.Loaded {
			t.Errorf("%s: mean is %s and the adapter's model %s", c.what, r.state(mean), r.state("lo"))
		}
		if used := r.models.Bytes(); used > c.budget {
			t.Errorf("%s: %d bytes are packed of %d", c.what, used, c.budget)
		}
	}
}

// A request that leaves releases its adapter while its items may still reach a device. A batch does
// not need an adapter that was freed in this way.
func TestBatchWithARemovedAdapter(t *testing.T) {
	r, key := withAdapters(t, nil)
	if _, err := untilLoaded(t,
		func() (*Result, error) { return r.Encode(t.Context(), four()) }); err != nil {
		t.Fatal(err)
	}
	m := r.copy("lo")
	a := m.adapters.all[key]
	m.adapters.mu.Lock()
	m.adapters.limit = 1
	made := m.adapters.makeRoomLocked()
	m.adapters.unlock()
	if !made || !a.gone || a.replicas != nil {
		t.Fatalf("the adapter is there: %v, %+v", made, a)
	}
	v, err := m.Variant(m.weights.Own())
	if err != nil {
		t.Fatal(err)
	}
	set, which, done, err := v.adapted(m.adapters, []batch.Adapter{a, nil})
	if err != nil || len(set.adapters) != 0 || !slices.Equal(which, []int32{-1, -1}) {
		t.Fatalf("%+v, %v, %v", set, which, err)
	}
	done()
}
