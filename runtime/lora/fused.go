package lora

import "fmt"

// Fused returns the pair of a linear that stacks the outputs of several. Architectures compute
// query, key and value like this. The rows of A are stacked, and B has a block for each. The names
// are of Base.Linears, all with the same K. The result is false when the adapter has none of them.
// The rank is the sum of theirs. It may exceed MaxRank; then the recorder refuses it.
func (a *Adapter) Fused(names ...string) (Pair, bool) {
	var out Pair
	for i, name := range names {
		shape, ok := a.shapes[name]
		if !ok || (i > 0 && shape.K != out.K) {
			panic(fmt.Sprintf("lora: %s of %v cannot be fused with %s", name, shape, names[0]))
		}
		out.K = shape.K
		out.N += shape.N
		out.Rank += a.Pairs[name].Rank
	}
	if out.Rank == 0 {
		return Pair{}, false
	}
	if len(names) == 1 {
		return a.Pairs[names[0]], true
	}
	out.A = make([]float32, 0, out.Rank*out.K)
	out.B = make([]float32, out.N*out.Rank)
	row, column := 0, 0
	for _, name := range names {
		p := a.Pairs[name]
		out.A = append(out.A, p.A...)
		for n := range a.shapes[name].N {
			copy(out.B[(row+n)*out.Rank+column:], p.B[n*p.Rank:(n+1)*p.Rank])
		}
		row += a.shapes[name].N
		column += p.Rank
	}
	return out, true
}
