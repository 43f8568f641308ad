package arch

import (
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// Relative position biases (Raffel 2020, arXiv:1910.10683, §2.1) are numbers that attention adds to
// the score of a query and a key, by head and by how far the key stands from the query. A
// checkpoint has one number for each bucket of distances. Attention reads a table by distance,
// which is made here, on the host.

// relativeBuckets says which distances share a bucket, as T5's encoder and MPNet have them. Half of
// the buckets are for keys behind the query. Of each half the first half has a distance each; the
// others grow with the logarithm of the distance up to farthest, and the last takes what is beyond.
type relativeBuckets struct {
	count    int64 // even, at least 4
	farthest int64 // more than count/4
}

// of returns the bucket of a key that stands distance tokens behind its query, or before it where
// distance is negative. The logarithm is rounded as transformers rounds it, in float32.
func (b relativeBuckets) of(distance int64) int64 {
	half := b.count / 2
	first, exact := int64(0), half/2
	if distance > 0 {
		first = half
	} else {
		distance = -distance
	}
	if distance < exact {
		return first + distance
	}
	share := float32(math.Log(float64(float32(distance)/float32(exact)))) /
		float32(math.Log(float64(b.farthest)/float64(exact)))
	return first + min(exact+int64(share*float32(half-exact)), half-1)
}

// reach returns the distance from which on all keys of a side share a bucket.
func (b relativeBuckets) reach() int64 {
	reach := int64(0)
	for d := range b.farthest + 1 {
		if b.of(d) != b.of(d+1) || b.of(-d) != b.of(-d-1) {
			reach = d + 1
		}
	}
	return reach
}

// spread makes the rows of heads by distance, [heads, 2·reach + 1], of a table by bucket, [count,
// heads].
func (b relativeBuckets) spread(buckets []float32, heads int64) []float32 {
	reach := b.reach()
	table := make([]float32, 0, heads*(2*reach+1))
	for head := range heads {
		for distance := -reach; distance <= reach; distance++ {
			table = append(table, buckets[b.of(distance)*heads+head])
		}
	}
	return table
}

// relativeBias packs engine.Attention.Bias from the tensor of that name, [b.count, heads].
func (p *packer) relativeBias(b relativeBuckets, heads int64, name string) *engine.Weight {
	if p.err != nil {
		return nil
	}
	buckets, err := p.floats(name, b.count, heads)
	if err != nil {
		p.fail(err)
		return nil
	}
	return p.data(2*b.reach()+1, engine.F32, littleEndian(b.spread(buckets, heads)))
}
