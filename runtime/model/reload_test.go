package model

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// TestSetCatalog adds, changes and removes models while one is in use. Running requests finish with
// the old model; unchanged models stay loaded.
func TestSetCatalog(t *testing.T) {
	meanDir, clsDir := golden.Open(t, dirs[mean]).Dir, golden.Open(t, dirs[cls]).Dir
	var gate atomic.Pointer[chan struct{}]
	arrived := make(chan struct{}, 1)
	r := start(t, func(o *Options) {
		o.Intercept = func(*engine.Batch) error {
			if g := gate.Load(); g != nil {
				arrived <- struct{}{}
				<-*g
			}
			return nil
		}
	}, nil, family(t, "test/kept", meanDir, ""), family(t, "test/other", clsDir, ""))
	kept := r.vectors("test/kept", words(3)...)
	r.vectors("test/other", words(3)...)
	hold := make(chan struct{})
	gate.Store(&hold)
	done := make(chan error, 1)
	go func() { // runs until the gate opens
		res, err := r.Encode(t.Context(), &Request{Model: "test/other", Texts: words(2)})
		if err == nil && len(res.Rows) != 2 {
			err = fmt.Errorf("%d rows", len(res.Rows))
		}
		done <- err
	}()
	<-arrived
	gate.Store(nil)
	old := r.copy("test/other")

	c, err := r.snapshot.Load().catalog.With(family(t, "test/other", clsDir,
		"  short: {extends: default, adapter_options: {runtime: {normalize: true}}}\n"),
		family(t, "test/zz", clsDir, ""))
	if err != nil {
		t.Fatal(err)
	}
	did, err := r.SetCatalog(c)
	if err != nil || !slices.Equal(did.Added, []string{"test/other:short", "test/zz"}) ||
		!slices.Equal(did.Changed, []string{"test/other"}) || len(did.Removed) > 0 {
		t.Fatalf("%+v, %v", did, err)
	}
	if r.state("test/kept") != registry.Loaded {
		t.Errorf("a model that did not change is %s", r.state("test/kept"))
	}
	select {
	case err := <-done:
		t.Fatal("the request ended early:", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := r.vectors("test/kept", words(3)...); fmt.Sprint(got) != fmt.Sprint(kept) {
		t.Error("a model that did not change gives other vectors")
	}
	r.vectors("test/other", words(3)...)
	if r.copy("test/other") == old {
		t.Error("the old weights are used on")
	}
	r.vectors("test/other:short", words(3)...)

	did, err = r.SetCatalog(only(r, "test/kept"))
	if err != nil || len(did.Removed) != 3 {
		t.Fatalf("%+v, %v", did, err)
	}
	r.refused(t.Context(), &Request{Model: "test/other", Texts: words(3)}, errs.ModelNotFound, 404)
	for deadline := time.Now().Add(2 * time.Minute); r.models.Bytes() !=
		r.copy("test/kept").Bytes(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("removed models are still loaded")
		}
	}
	if did, err := r.SetCatalog(only(r, "test/kept")); err != nil || !did.None() {
		t.Errorf("the same again: %+v, %v", did, err)
	}
	if got := r.vectors("test/kept", words(3)...); fmt.Sprint(got) != fmt.Sprint(kept) {
		t.Error("a model that did not change gives other vectors")
	}
}
