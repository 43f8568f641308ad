package golden

import (
	"math"
	"testing"
)

func TestCompare(t *testing.T) {
	want := []float32{3, -4, 0, 1e-9}
	if d := Compare([]float32{3, -4, 0, 1e-9}, want); d.MaxAbs != 0 || d.MaxRel != 0 ||
		math.Abs(d.Cosine-1) > 1e-15 || d.NormRatio != 1 {
		t.Errorf("equal vectors: %v", d)
	}
	if d := Compare([]float32{6, -8, 0, 0}, want); d.MaxAbs != 4 || d.AbsAt != 1 || d.MaxRel != 1 ||
		math.Abs(d.NormRatio-2) > 1e-9 || d.Cosine < 0.999999 {
		t.Errorf("twice as long: %v", d) // the cosine does not change, the norm ratio does
	}
	for name, got := range map[string][]float32{
		"short": {3, -4, 0}, "NaN": {3, -4, float32(math.NaN()), 0},
		"infinite": {3, -4, 0, float32(math.Inf(-1))},
	} {
		if d := Compare(got, want); d.MaxAbs < 1e300 || d.Cosine > 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
	if d := Compare([]float32{0, 0}, []float32{0, 0}); d.Cosine != 1 || d.NormRatio != 1 {
		t.Errorf("zeros: %v", d)
	}
	if d := Compare([]float32{0, 0}, []float32{1, 0}); d.Cosine != 0 || d.NormRatio != 0 {
		t.Errorf("lost vector: %v", d)
	}
}

func TestNDCG10(t *testing.T) {
	// One query along axis 0, twelve documents with falling scores.
	const dim = 2
	want := []float32{1, 0}
	for i := range 12 {
		want = append(want, 1-float32(i)/100, 0)
	}
	if got := NDCG10(want, want, dim, 1); got != 1 {
		t.Errorf("same ranking: %v", got)
	}
	swapped := append([]float32(nil), want...)
	a, b := dim*(1+9), dim*(1+10) // tenth and eleventh
	swapped[a], swapped[b] = swapped[b], swapped[a]
	var ideal float64
	for i := range 10 {
		ideal += 1 / math.Log2(float64(i+2))
	}
	if got, expect := NDCG10(swapped, want, dim, 1), 1-1/math.Log2(11)/ideal; math.Abs(got-expect) > 1e-12 {
		t.Errorf("tenth swapped with eleventh: %v, expected %v", got, expect)
	}
}

func TestEveryCaseOpens(t *testing.T) {
	for _, name := range []string{
		"bert-deep-h32", "bert-gelutanh-h64", "bert-erf-h128", "bert-relu-h192", "st-cls-normalize",
		"st-mean", "st-last-dense-identity", "st-mean-dense-tanh-normalize-prompts", "minilm",
	} {
		c := Open(t, name)
		ids, cu := c.Int32("ids"), c.Int32("cu_seqlens")
		if len(ids) == 0 || int(cu[len(cu)-1]) != len(ids) {
			t.Errorf("%s: %d ids, cu_seqlens ends at %d", name, len(ids), cu[len(cu)-1])
		}
	}
}
