package arch

import (
	"slices"
	"testing"
)

// The distances at which the bucket changes, by transformers 5.23: MPNetEncoder's
// relative_position_bucket of keys before the query, which are those of T5Attention too. At 16, 32
// and 64 the logarithm is a whole number of buckets, so that its rounding decides.
func TestRelativeBuckets(t *testing.T) {
	for _, c := range []struct {
		b     relativeBuckets
		edges []int64
	}{
		{relativeBuckets{32, 128}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}},
		{relativeBuckets{32, 256}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 30, 46, 70, 108, 166}},
		{relativeBuckets{32, 64}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 18, 23, 30, 39, 50}},
		{relativeBuckets{16, 64}, []int64{1, 2, 3, 4, 8, 16, 32}},
		{relativeBuckets{64, 128}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 21, 24,
			27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113}},
		{relativeBuckets{8, 20}, []int64{1, 2, 7}},
		{relativeBuckets{4, 9}, []int64{1}},
	} {
		var before, behind []int64
		for d := int64(1); d < 100000; d++ {
			if c.b.of(-d) != c.b.of(1-d) {
				before = append(before, d)
			}
			if d == 1 || c.b.of(d) != c.b.of(d-1) {
				behind = append(behind, d)
			}
			if c.b.of(d)-c.b.of(-d) != c.b.count/2 {
				t.Fatalf("%v: distances ±%d have the buckets %d and %d", c.b, d, c.b.of(d), c.b.of(-d))
			}
		}
		if !slices.Equal(before, c.edges) || !slices.Equal(behind, c.edges) {
			t.Errorf("%v: edges at %v and %v, want %v", c.b, before, behind, c.edges)
		}
		if reach := c.b.reach(); reach != c.edges[len(c.edges)-1] {
			t.Errorf("%v: a reach of %d, want %d", c.b, reach, c.edges[len(c.edges)-1])
		}
	}
}

// A table by distance has each head's number of the distance's bucket.
func TestRelativeTable(t *testing.T) {
	b, heads := relativeBuckets{32, 128}, int64(3)
	buckets := make([]float32, b.count*heads)
	for i := range buckets {
		buckets[i] = float32(i)
	}
	table := b.spread(buckets, heads)
	if len(table) != 3*183 {
		t.Fatalf("%d numbers, want 3·183", len(table))
	}
	for _, c := range []struct{ head, distance, bucket int64 }{
		{0, -91, 15}, {0, -90, 14}, {1, -1, 1}, {1, 0, 0}, {1, 1, 17}, {2, 7, 23}, {2, 8, 24},
		{2, 90, 30}, {2, 91, 31},
	} {
		if got, want := table[c.head*183+c.distance+91], float32(c.bucket*heads+c.head); got != want {
			t.Errorf("head %d, distance %d: %g, want %g", c.head, c.distance, got, want)
		}
	}
}
