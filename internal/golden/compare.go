package golden

import (
	"fmt"
	"math"
	"slices"
)

// Diff measures how far a result is from its reference. Each number shows an error that another
// hides: a cosine ignores scale and one lost coordinate in a thousand, a maximum ignores a small
// common bias.
type Diff struct {
	MaxAbs    float64 // largest |got - want|
	AbsAt     int     // its index
	MaxRel    float64 // largest |got - want| / |want|, where |want| ≥ 1e-3 of the largest |want|
	RelAt     int     // its index
	Cosine    float64
	NormRatio float64 // |got| / |want|; 1 when both are 0
}

func (d Diff) String() string {
	return fmt.Sprintf("max abs %.3g at %d, max rel %.3g at %d, cosine %.8f, norm ratio %.6f",
		d.MaxAbs, d.AbsAt, d.MaxRel, d.RelAt, d.Cosine, d.NormRatio)
}

// Compare compares two vectors of the same length. Another length, or a NaN or infinity in got,
// gives a Diff that fails every bound.
func Compare(got, want []float32) Diff {
	bad := Diff{MaxAbs: math.Inf(1), MaxRel: math.Inf(1), Cosine: -1, NormRatio: math.Inf(1)}
	if len(got) != len(want) {
		return bad
	}
	var largest float64
	for _, w := range want {
		largest = max(largest, math.Abs(float64(w)))
	}
	var d Diff
	var gg, ww, gw float64
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if math.IsNaN(g) || math.IsInf(g, 0) {
			bad.AbsAt = i
			return bad
		}
		abs := math.Abs(g - w)
		if abs > d.MaxAbs {
			d.MaxAbs, d.AbsAt = abs, i
		}
		if math.Abs(w) >= 1e-3*largest && w != 0 && abs/math.Abs(w) > d.MaxRel {
			d.MaxRel, d.RelAt = abs/math.Abs(w), i
		}
		gg, ww, gw = gg+g*g, ww+w*w, gw+g*w
	}
	switch {
	case gg == 0 && ww == 0:
		d.Cosine, d.NormRatio = 1, 1
	case gg == 0 || ww == 0:
		d.Cosine, d.NormRatio = 0, math.Sqrt(gg/ww)
	default:
		d.Cosine, d.NormRatio = gw/math.Sqrt(gg*ww), math.Sqrt(gg/ww)
	}
	return d
}

// NDCG10 returns the mean NDCG@10 of got's rankings, where the ten best documents by want are the
// relevant ones. Rows 0 … queries-1 of both [n, dim] matrices are queries, the other rows
// documents; scores are dot products.
func NDCG10(got, want []float32, dim, queries int) float64 {
	var total float64
	for q := range queries {
		relevant := top10(want, dim, queries, q)
		var gain, ideal float64
		for rank, doc := range top10(got, dim, queries, q) {
			weight := 1 / math.Log2(float64(rank+2))
			ideal += weight
			if slices.Contains(relevant, doc) {
				gain += weight
			}
		}
		total += gain / ideal
	}
	return total / float64(queries)
}

// top10 returns the ten best documents for a query; equal scores keep document order.
func top10(m []float32, dim, queries, query int) []int {
	type scored struct {
		doc   int
		score float64
	}
	q := m[query*dim : (query+1)*dim]
	docs := make([]scored, len(m)/dim-queries)
	for i := range docs {
		row := m[(queries+i)*dim:]
		var s float64
		for j, x := range q {
			s += float64(x) * float64(row[j])
		}
		docs[i] = scored{i, s}
	}
	slices.SortStableFunc(docs, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	out := make([]int, 0, 10)
	for _, d := range docs[:min(10, len(docs))] {
		out = append(out, d.doc)
	}
	return out
}
