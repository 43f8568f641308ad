package batch

import "testing"

// Packing allocates the lists of the batch, and nothing for an item.
func TestPackingAllocatesPerBatch(t *testing.T) {
	specs := []Spec{{Bytes: 8}, {Bytes: 4, Values: true}}
	for _, c := range []struct {
		what string
		make func() *Item
		// ids, cu_seqlens, the outputs, specs and offsets of each, the batch; and what the items
		// bring
		most float64
	}{
		{"plain", func() *Item { return &Item{Inputs: Inputs{IDs: []int32{1, 2}}, Specs: specs} }, 8},
		{"types", func() *Item {
			return &Item{Inputs: Inputs{IDs: []int32{1, 2}, TypeIDs: []int32{0, 1}}, Specs: specs}
		}, 9},
		{"types and keep", func() *Item {
			return &Item{
				Inputs: Inputs{IDs: []int32{1, 2}, TypeIDs: []int32{0, 1}, Keep: []uint8{1, 0}}, Specs: specs,
			}
		}, 10},
	} {
		for _, n := range []int{1, 64} {
			items := make([]*Item, n)
			for i := range items {
				items[i] = c.make()
			}
			if got := testing.AllocsPerRun(100, func() { packAll(items) }); got > c.most {
				t.Errorf("%s, %d items: %v allocations, at most %v are wanted", c.what, n, got, c.most)
			}
		}
	}
}

func BenchmarkPack(b *testing.B) {
	items := make([]*Item, 64)
	for i := range items {
		items[i] = &Item{
			Inputs: Inputs{IDs: make([]int32, 100), TypeIDs: make([]int32, 100)},
			Specs:  []Spec{{Bytes: 1536}},
			Index:  i,
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		packAll(items)
	}
}
