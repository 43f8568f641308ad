package catalog

import (
	"reflect"
	"strings"
	"testing"
)

// A union is the catalog of all models, without resolving any again, and takes no id twice.
func TestUnion(t *testing.T) {
	all, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var ones []*Catalog
	for i := range all.Models() {
		one, err := Of(all.Models()[len(all.Models())-1-i])
		if err != nil {
			t.Fatal(err)
		}
		ones = append(ones, one)
	}
	got, err := Union(ones...)
	if err != nil {
		t.Fatal(err)
	}
	if got.Len() != all.Len() || !reflect.DeepEqual(got.Models(), all.Models()) {
		t.Errorf("%d ids of %d models, want %d", got.Len(), len(got.Models()), all.Len())
	}
	for i, r := range got.List() {
		if r.ID != all.List()[i].ID {
			t.Fatalf("id %d is %s, want %s", i, r.ID, all.List()[i].ID)
		}
		if found, err := got.Resolve(r.ID); err != nil || found != r {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
	_, err = Union(ones[0], ones[1], ones[0])
	if err == nil || !strings.Contains(err.Error(), ones[0].Models()[0].ID) {
		t.Errorf("an id twice: %v", err)
	}
}
