package arch

import (
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// GLiNERAdjacency says which candidates may be related. The device computes their states and what
// is linear in them. Their matrix is made here: for MaxCandidates rows it takes few operations, and
// a graph convolution weighs rows by their products. Safe for concurrent use.
type GLiNERAdjacency struct {
	Columns int       // of a row of OutNodes: those of a state, and of what is convolved
	state   int       // columns of a state
	layers  []layer   // state → the rest of a row, or the whole one
	bias    []float32 // b, of a graph convolution
	project affine    // P and p, of a graph convolution
}

// glinerAdjacencies has the relations_layer of adjacencies that are served. Each packs its layers
// over states [d].
var glinerAdjacencies = map[string]func(p *packer, d int64) *GLiNERAdjacency{
	"dot":      loadDots,
	"bilinear": loadBilinear,
	"gcn":      loadGraph,
}

const glinerRelationLayer = "relations_rep_layer.relation_rep_layer."

// loadDots is sigmoid(S·Sᵀ).
func loadDots(_ *packer, d int64) *GLiNERAdjacency {
	return &GLiNERAdjacency{Columns: int(d), state: int(d)}
}

// loadBilinear is sigmoid(Z·Zᵀ) with Z = S·Wᵀ + b.
func loadBilinear(p *packer, d int64) *GLiNERAdjacency {
	a := loadDots(p, d)
	a.layers = []layer{p.layer(d, d, glinerRelationLayer+"proj", engine.NoAct)}
	return a
}

// loadGraph is sigmoid(Z·Zᵀ) with Z = H·Pᵀ + p, of a graph convolution H = relu(Â·S·Wᵀ + b). There
// Â = D^(-½)·(A + I)·D^(-½), with A = sigmoid(S·Sᵀ) and D the sums of A + I by rows.
func loadGraph(p *packer, d int64) *GLiNERAdjacency {
	const linear = glinerRelationLayer + "gcn.linear."
	return &GLiNERAdjacency{Columns: int(2 * d), state: int(d),
		layers:  []layer{{weight: p.linear(d, d, linear+"weight")}},
		bias:    p.hostTensor(linear+"bias", d),
		project: p.affineOf(d, d, glinerRelationLayer+"proj")}
}

// nodes records the rows of OutNodes for states.
func (a *GLiNERAdjacency) nodes(r *engine.Recorder, states engine.Value) engine.Value {
	rows := applyAll(r, states, a.layers)
	if a.Columns == a.state {
		return rows
	}
	return r.Join(states, rows)
}

// Matrix returns the adjacency [n, n] of the n candidates whose rows of OutNodes are nodes, each
// entry from 0 to 1.
func (a *GLiNERAdjacency) Matrix(nodes []float32, n int) []float32 {
	states := make([][]float32, n)
	for i := range states {
		states[i] = nodes[i*a.Columns:][:a.state]
	}
	matrix := products(states)
	if a.Columns == a.state {
		return matrix
	}
	for i := range n {
		matrix[i*n+i]++
	}
	scale := make([]float32, n)
	for i := range scale {
		var degree float32
		for _, v := range matrix[i*n:][:n] {
			degree += v
		}
		scale[i] = 1 / float32(math.Sqrt(float64(max(degree, 1e-6))))
	}
	for i := range states {
		hidden := make([]float32, a.state)
		for j := range n {
			weight := scale[i] * matrix[i*n+j] * scale[j]
			for c, v := range nodes[j*a.Columns+a.state:][:a.state] {
				hidden[c] += weight * v
			}
		}
		for c, b := range a.bias {
			hidden[c] = max(0, hidden[c]+b)
		}
		states[i] = a.project.apply(hidden)
	}
	return products(states)
}

// apply returns x·Wᵀ + b.
func (a *affine) apply(x []float32) []float32 {
	y := make([]float32, a.out)
	for o := range y {
		y[o] = innerProduct(a.weight[int64(o)*a.in:][:a.in], x) + a.bias[o]
	}
	return y
}

// products returns the sigmoids of the products of each two rows.
func products(rows [][]float32) []float32 {
	n := len(rows)
	out := make([]float32, n*n)
	for i := range n {
		for j := i; j < n; j++ {
			y := 1 / (1 + float32(math.Exp(float64(-innerProduct(rows[i], rows[j])))))
			out[i*n+j], out[j*n+i] = y, y
		}
	}
	return out
}

// innerProduct returns a·b in eight sums, so that its error and its time are those of short rows.
func innerProduct(a, b []float32) float32 {
	var sums [8]float32
	n := len(a) &^ 7
	for i := 0; i < n; i += 8 {
		x, y := a[i:i+8:i+8], b[i:i+8:i+8]
		for k := range sums {
			sums[k] += x[k] * y[k]
		}
	}
	for i := n; i < len(a); i++ {
		sums[0] += a[i] * b[i]
	}
	return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}
