package models

import (
	"testing"

	"github.com/sie-engine/sie/catalog"
)

// What the hashes cover of a model is computed once, while the bundles are the same.
func TestPartsStay(t *testing.T) {
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := catalog.BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	some, _ := all.Select([]string{all.Models()[1].ID, all.Models()[2].ID})
	r := New(Options{})
	r.Set(some, bundles, Version{})
	before := r.current.Load().parts
	r.Set(all, bundles, Version{})
	after := r.current.Load()
	if len(before) != 2 || len(after.parts) != len(all.Models()) {
		t.Fatalf("%d and %d models", len(before), len(after.parts))
	}
	for m, parts := range before {
		if &parts[0] != &after.parts[m][0] {
			t.Errorf("%s is hashed again", m.ID)
		}
	}
	for _, b := range bundles {
		if after.hashes[b.Name].Config != all.BundleConfigHash(b) {
			t.Errorf("%s hashes to %s", b.Name, after.hashes[b.Name].Config)
		}
	}
	changed, err := catalog.Merge(all, catalog.Document{Name: "more", Source: []byte("sie_id: " +
		some.Models()[0].ID + "\nprofiles:\n  more: {extends: default, max_batch_tokens: 7}\n")})
	if err != nil {
		t.Fatal(err)
	}
	r.Set(changed, bundles, Version{})
	for _, b := range bundles {
		if hash := r.current.Load().hashes[b.Name].Config; hash != changed.BundleConfigHash(b) {
			t.Errorf("after a change %s hashes to %s", b.Name, hash)
		}
	}
	r.Set(all, bundles, Version{})
	after = r.current.Load()
	r.Set(all, bundles[1:], Version{})
	for m, parts := range after.parts {
		if len(bundles) > 1 && &parts[0] == &r.current.Load().parts[m][0] {
			t.Fatalf("%s keeps what it had under other bundles", m.ID)
		}
	}
}
