//go:build native

package engine

import (
	"reflect"
	"testing"
)

// The structs that are passed to C without conversion have its layout: every field has the offset
// and the size of C's.
func TestEntriesMirrorTheHeader(t *testing.T) {
	kinds := endOfKinds - 1
	if len(mirrors) != kinds-2+1 { // output_rows, values and token_rows share a struct; sie_op is one more
		t.Fatalf("%d structs are compared, of %d kinds", len(mirrors), kinds)
	}
	for _, pair := range mirrors {
		ours, theirs := pair[0], pair[1]
		if ours.Size() != theirs.Size() {
			t.Errorf("%s has %d bytes, %s %d", ours, ours.Size(), theirs, theirs.Size())
			continue
		}
		places := func(s reflect.Type) (out [][2]uintptr) {
			for f := range s.NumField() {
				out = append(out, [2]uintptr{s.Field(f).Offset, s.Field(f).Type.Size()})
			}
			return out
		}
		if got, want := places(ours), places(theirs); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has fields at (offset, size) %v, %s at %v", ours, got, theirs, want)
		}
	}
}
