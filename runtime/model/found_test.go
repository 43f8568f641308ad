package model

import (
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// A found result gets room for what earlier ones had, for no more than it may have, and within a
// bound whatever one request found.
func TestRoomOfFoundResults(t *testing.T) {
	var v Variant
	v.Room.Store(firstRoom)
	o := &engine.Output{Columns: 4}
	for _, c := range []struct{ found, most, want int }{
		{0, 1 << 20, firstRoom}, {0, 10, 10}, {0, 0, 1}, {4000, 1 << 20, 5000}, {4000, 4500, 4500},
		{1 << 20, 1 << 20, maxFoundRoom}, {1 << 20, 20, 20},
	} {
		v.Grow(c.found)
		s := v.FoundSpec(o, c.most, 0)
		if int(s.Dims) != c.want || s.Bytes != int(engine.FoundBytes(o, c.want)) {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}
