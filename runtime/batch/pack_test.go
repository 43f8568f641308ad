package batch

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// Fields that an item leaves out are filled in, shared queries are packed once, and each output has
// its own offsets.
func TestPack(t *testing.T) {
	q := &Query{Rows: []float32{1, 2, 3, 4}, N: 2}
	other := &Query{Rows: []float32{5, 6}, N: 1}
	red := "red"
	items := []*Item{
		{Inputs: Inputs{IDs: []int32{1, 2, 3}, Keep: []uint8{0, 1, 1}}, Query: q,
			Specs: []Spec{{Bytes: 8}, {Bytes: 4, Values: true}}},
		{Query: other, Specs: []Spec{{Bytes: 20}, {Bytes: 4, Values: true}}},
		{Inputs: Inputs{IDs: []int32{4, 5}, TypeIDs: []int32{0, 1}}, Adapter: &red,
			Specs: []Spec{{Bytes: 8}, {Bytes: 4, Values: true}}},
		{Inputs: Inputs{IDs: []int32{6}}, Query: q, Specs: []Spec{{Bytes: 8}, {Bytes: 4, Values: true}}},
	}
	p := packAll(items)
	for _, c := range []struct {
		what       string
		have, want any
	}{
		{"ids", p.IDs, []int32{1, 2, 3, 4, 5, 6}},
		{"cu_seqlens", p.CuSeqlens, []int32{0, 3, 3, 5, 6}},
		{"type ids", p.TypeIDs, []int32{0, 0, 0, 0, 1, 0}},
		{"keep", p.Keep, []uint8{0, 1, 1, 1, 1, 1}},
		{"adapters", p.Adapters, []Adapter{nil, nil, &red, nil}},
		{"queries", p.Queries, []float32{1, 2, 3, 4, 5, 6}},
		{"cu_queries", p.CuQueries, []int32{0, 2, 3}},
		{"partner", p.Partner, []int32{0, 1, -1, 0}},
		{"places of output 0", p.Outputs[0].Offsets, []int64{0, 16, 48, 64}},
		{"places of output 1", p.Outputs[1].Offsets, []int64{0, 4, 8, 12}},
		{"size of output 0", p.Outputs[0].Bytes, int64(80)},
		{"size of output 1", p.Outputs[1].Bytes, int64(16)},
	} {
		if !reflect.DeepEqual(c.have, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.have, c.want)
		}
	}
	plain := packAll(items[3:])
	plain = packAll([]*Item{{Inputs: Inputs{IDs: plain.IDs}, Specs: []Spec{{Bytes: 1}}}})
	if plain.TypeIDs != nil || plain.Keep != nil || plain.Adapters != nil || plain.Partner != nil ||
		plain.CuQueries != nil || plain.CuWords != nil || plain.CuMarkers != nil || plain.CuSpans != nil {
		t.Errorf("a batch of plain texts carries more than texts: %+v", plain)
	}
}

// Places are laid end to end as they are; offsets say whose they are.
func TestPackPlaces(t *testing.T) {
	one := []Spec{{Bytes: 4}}
	p := packAll([]*Item{
		{Inputs: Inputs{IDs: []int32{1}}, Specs: one},
		{Inputs: Inputs{IDs: []int32{1, 2, 3}, Words: Places{First: []int32{1, 2}, Last: []int32{1, 2}},
			Markers: Places{First: []int32{0}}}, Specs: one},
		{Inputs: Inputs{IDs: []int32{4}}, Specs: one},
		{Inputs: Inputs{IDs: []int32{5, 6}, Words: Places{First: []int32{0}, Last: []int32{1}},
			Markers: Places{First: []int32{0, 1}}}, Specs: one},
	})
	for _, c := range []struct {
		what       string
		have, want any
	}{
		{"cu of words", p.CuWords, []int32{0, 0, 2, 2, 3}},
		{"words", p.Words, Places{First: []int32{1, 2, 0}, Last: []int32{1, 2, 1}}},
		{"cu of markers", p.CuMarkers, []int32{0, 0, 1, 1, 3}},
		{"markers", p.Markers, Places{First: []int32{0, 0, 1}}},
		{"cu of spans", p.CuSpans, []int32(nil)},
		{"spans", p.Spans, Places{}},
	} {
		if !reflect.DeepEqual(c.have, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.have, c.want)
		}
	}
}

// An item's inputs lie at its own place, whichever items bring them and whichever leave them out.
func TestInputsOfSomeItems(t *testing.T) {
	for with := range 1 << 3 { // which of three items bring types and marks
		var items []*Item
		var types []int32
		var keep []uint8
		for i := range 3 {
			it := &Item{Inputs: Inputs{IDs: make([]int32, i+1)}, Specs: []Spec{{Bytes: 1}}}
			for range it.IDs {
				types, keep = append(types, 0), append(keep, 1)
			}
			if with>>i&1 == 1 {
				it.TypeIDs, it.Keep = make([]int32, i+1), make([]uint8, i+1)
				it.TypeIDs[i], types[len(types)-1] = 7, 7
				copy(keep[len(keep)-i-1:], it.Keep)
			}
			items = append(items, it)
		}
		if with == 0 {
			types, keep = nil, nil
		}
		if p := packAll(items); !reflect.DeepEqual(p.TypeIDs, types) || !reflect.DeepEqual(p.Keep, keep) ||
			len(p.IDs) != 6 {
			t.Errorf("items %03b: types %v and marks %v, want %v and %v",
				with, p.TypeIDs, p.Keep, types, keep)
		}
	}
}

// Items whose queries do not fit into one batch run in several, and a shared query counts once.
func TestQueryRowsBoundABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &fakeRunner{perToken: time.Millisecond}
		d := NewSingleScheduler(1)
		q := NewQueue(d, run, Options{MaxQueryRows: 10})
		defer q.Close(ErrClosed)
		first := submit(t, q, t.Context(), text(1, 100)) // keeps the device busy while the others gather
		synctest.Wait()
		var items []Item
		for i := range 9 {
			if i%3 == 0 {
				items = append(items, text(int32(i), 1))
				items[i].Query = &Query{N: 4}
				continue
			}
			items = append(items, text(int32(i), 1))
			items[i].Query = items[i-1].Query
		}
		if _, err := submit(t, q, t.Context(), items...).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 6, 3}; !reflect.DeepEqual(run.batches, want) {
			t.Errorf("batches of %v items, want %v: three queries of 4 rows, at most 10 rows a batch",
				run.batches, want)
		}
	})
}

// Spans of all items of a batch are bounded; an item that has more runs alone.
func TestSpansBoundABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &fakeRunner{perToken: time.Millisecond}
		d := NewSingleScheduler(1)
		q := NewQueue(d, run, Options{MaxSpans: 10})
		defer q.Close(ErrClosed)
		first := submit(t, q, t.Context(), text(1, 100)) // keeps the device busy while the others gather
		synctest.Wait()
		var items []Item
		for i, n := range []int{4, 6, 0, 1, 9, 1, 11, 0} {
			items = append(items, text(int32(i), 1))
			items[i].Spans.First = make([]int32, n)
		}
		if _, err := submit(t, q, t.Context(), items...).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 3, 2, 1, 1, 1}; !reflect.DeepEqual(run.batches, want) {
			t.Errorf("batches of %v items, want %v: at most 10 spans a batch", run.batches, want)
		}
	})
}

// MaxOutput limits a batch for each output separately; a single item runs whatever its size.
func TestOutputsBoundABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := &fakeRunner{perToken: time.Millisecond}
		d := NewSingleScheduler(1)
		q := NewQueue(d, run, Options{MaxOutput: 100})
		defer q.Close(ErrClosed)
		first := submit(t, q, t.Context(), text(1, 100)) // keeps the device busy while the others gather
		synctest.Wait()
		var items []Item
		for i, bytes := range [][2]int{
			{8, 1}, {8, 30}, {8, 30}, {8, 30}, {8, 200}, {8, 1}, {20, 1}, {20, 1}, {20, 1}, {20, 1},
		} {
			it := text(int32(i), 1)
			it.Specs = []Spec{{Bytes: bytes[0]}, {Bytes: bytes[1], Values: i < 2}}
			items = append(items, it)
		}
		if _, err := submit(t, q, t.Context(), items...).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Wait(); err != nil {
			t.Fatal(err)
		}
		// Output 1 to 1, 31, then in multiples of 16 to 64 and 96; the large one alone; output 0 to
		// 16, 48, 80, then what is left.
		if want := []int{1, 4, 1, 3, 2}; !reflect.DeepEqual(run.batches, want) {
			t.Errorf("batches of %v items, want %v", run.batches, want)
		}
	})
}

// packAll packs the items of a batch.
func packAll(items []*Item) *Packed {
	set := prefixesOf(items)
	return pack(items, &set)
}
