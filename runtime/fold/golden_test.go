package fold

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// The encodings of testdata/golden/fold come from sie-server's post-processors. They follow from
// the tables by the formulas of kernels/ops.h, which this file implements again, number by number
// in float64.

type note struct {
	Name     string
	TokenDim int `json:"token_dim"`
	Query    bool
	Config   config
	Dims     int
	Tables   string
}

type config struct {
	Repetitions int `json:"num_repetitions"`
	Bits        int `json:"num_simhash_projections"`
	Projected   int `json:"projection_dim"`
	Final       int `json:"final_projection_dim"`
	Width       int
	K           int
	MaxNonzeros int `json:"max_nonzeros"`
	Seed        int64
	Normalize   bool
	Center      bool `json:"center_tokens"`
	FillEmpty   bool `json:"fill_empty"`
}

func (c config) muvera() Muvera {
	return Muvera{c.Repetitions, c.Bits, c.Projected, c.Final, c.Seed, c.Normalize, c.Center, c.FillEmpty}
}

func TestMuveraGolden(t *testing.T) {
	c := golden.Open(t, "fold")
	notes := decode[[]note](t, c.Notes["muvera"])
	if len(notes) < 20 {
		t.Fatalf("%d cases", len(notes))
	}
	for _, n := range notes {
		m := n.Config.muvera()
		tables, err := m.Tables(n.TokenDim)
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
		var raw []byte
		for _, part := range []any{tables.Simhash, tables.AMS, tables.Sketch} {
			raw, _ = binary.Append(raw, binary.LittleEndian, part)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != n.Tables {
			t.Errorf("%s: the tables are not the original's", n.Name)
		}
		if m.Dims(n.TokenDim) != n.Dims {
			t.Errorf("%s: %d columns, the original has %d", n.Name, m.Dims(n.TokenDim), n.Dims)
		}
		want, _ := c.Float32(n.Name + ".out")
		for i, item := range items(c, n) {
			got := encode(m, tables, item, n.Query)
			if d := golden.Compare(got, want[i*n.Dims:(i+1)*n.Dims]); d.MaxAbs > 2e-6*float64(len(item)+1) {
				t.Errorf("%s, item %d: %v", n.Name, i, d)
			}
		}
	}
}

// items returns the token vectors of each item.
func items(c *golden.Case, n note) [][][]float32 {
	x, _ := c.Float32(n.Name + ".x")
	cu := c.Int32(n.Name + ".cu")
	out := make([][][]float32, len(cu)-1)
	for i := range out {
		for token := range slices.Chunk(x[int(cu[i])*n.TokenDim:int(cu[i+1])*n.TokenDim], n.TokenDim) {
			out[i] = append(out[i], token)
		}
	}
	return out
}

func encode(m Muvera, tables *MuveraTables, tokens [][]float32, query bool) []float32 {
	tokenDim := len(tables.Simhash) / m.Repetitions / m.Bits
	out := make([]float64, m.Dims(tokenDim))
	columns, partitions := m.Projected, 1<<m.Bits
	if columns == 0 {
		columns = tokenDim
	}
	mean := make([]float64, tokenDim)
	for _, token := range tokens {
		for c, x := range token {
			if m.CenterTokens {
				mean[c] += float64(x) / float64(len(tokens))
			}
		}
	}
	for r := range m.Repetitions {
		block, counts := make([]float64, partitions*columns), make([]int, partitions)
		add := func(partition int, token []float32) {
			for c, x := range token {
				to, v := int32(c), float64(x)-mean[c]
				if m.Projected != 0 {
					to = tables.AMS[r*tokenDim+c]
				}
				if to < 0 {
					to, v = ^to, -v
				}
				block[partition*columns+int(to)] += v
			}
		}
		var parts []int
		for _, token := range tokens {
			g := 0
			for i := range m.Bits {
				var s float64
				for c, x := range token {
					s += (float64(x) - mean[c]) * float64(tables.Simhash[(r*tokenDim+c)*m.Bits+i])
				}
				bit := 0
				if s > 0 {
					bit = 1
				}
				g = 2*g + (bit ^ g&1)
			}
			parts = append(parts, g)
			counts[g]++
			add(g, token)
		}
		for g := range partitions {
			switch {
			case query || len(tokens) == 0:
			case counts[g] > 0:
				for j := range columns {
					block[g*columns+j] /= float64(counts[g])
				}
			case m.FillEmpty:
				nearest, best := 0, 64
				for i, p := range parts {
					if d := bits.OnesCount(uint((g ^ g>>1) ^ (p ^ p>>1))); d < best {
						nearest, best = i, d
					}
				}
				add(g, tokens[nearest])
			}
		}
		for l, v := range block {
			l += r * len(block)
			if tables.Sketch == nil {
				out[l] = v
			} else if to := tables.Sketch[l]; to < 0 {
				out[^to] -= v
			} else {
				out[to] += v
			}
		}
	}
	var norm float64 = 1
	if m.Normalize {
		norm = 0
		for _, v := range out {
			norm += v * v
		}
		if norm = math.Sqrt(norm); norm == 0 {
			norm = 1
		}
	}
	rounded := make([]float32, len(out))
	for i, v := range out {
		rounded[i] = float32(v / norm)
	}
	return rounded
}

func TestSMVEGolden(t *testing.T) {
	c := golden.Open(t, "fold")
	notes := decode[[]note](t, c.Notes["smve"])
	if len(notes) < 10 {
		t.Fatalf("%d cases", len(notes))
	}
	for _, n := range notes {
		s := SMVE{n.Config.Repetitions, n.Config.Width, n.Config.K, n.Config.MaxNonzeros, n.Config.Seed}
		tables, err := s.Tables(n.TokenDim)
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
		places, anchors := c.Int32(n.Name+".anchor_places"), []float32(nil)
		for _, p := range places {
			anchors = append(anchors, tables.Anchors[int(p)*n.TokenDim:(int(p)+1)*n.TokenDim]...)
		}
		want, _ := c.Float32(n.Name + ".anchors")
		differ := 0
		for i := range want {
			if anchors[i] != want[i] {
				differ++
			}
			if math.Abs(float64(anchors[i]-want[i])) > 2e-7*math.Abs(float64(want[i])) {
				t.Fatalf("%s: anchor %d has %v at %d, the original %v",
					n.Name, places[i/n.TokenDim], anchors[i], i%n.TokenDim, want[i])
			}
		}
		if differ > len(want)/1000 { // the last bit of a number in the normal's tail depends on the C library
			t.Errorf("%s: %d of %d numbers of anchors differ in their last bits", n.Name, differ, len(want))
		}

		counts, columns := c.Int32(n.Name+".counts"), c.Int32(n.Name+".columns")
		values, _ := c.Float32(n.Name + ".values")
		for i, item := range items(c, n) {
			gotColumns, gotValues := encodeSparse(s, tables, item, n.Query)
			k := int(counts[i])
			if !slices.Equal(gotColumns, columns[:k]) {
				t.Errorf("%s, item %d: columns %v, the original has %v", n.Name, i, gotColumns, columns[:k])
			} else if d := golden.Compare(gotValues, values[:k]); d.MaxAbs > 2e-6*float64(len(item)+1) {
				t.Errorf("%s, item %d: %v", n.Name, i, d)
			}
			if k > s.Room(len(item)) {
				t.Errorf("%s, item %d: %d columns, room for %d", n.Name, i, k, s.Room(len(item)))
			}
			columns, values = columns[k:], values[k:]
		}
	}
}

func encodeSparse(
	s SMVE, tables *SMVETables, tokens [][]float32, query bool,
) (columns []int32, values []float32) {
	sums, counts := map[int32]float64{}, map[int32]float64{}
	for _, token := range tokens {
		for r := range s.Repetitions {
			products := make([]float64, s.Width)
			for a := range products {
				anchor := tables.Anchors[(r*s.Width+a)*len(token):]
				for c, x := range token {
					products[a] += float64(x) * float64(anchor[c])
				}
			}
			sorted := slices.Sorted(slices.Values(products))
			for a, product := range products { // the cases have no ties except zeros
				if product >= sorted[s.Width-s.Top] && product != 0 {
					sums[int32(r*s.Width+a)] += product
					counts[int32(r*s.Width+a)]++
				}
			}
		}
	}
	for column := range sums {
		if !query {
			sums[column] /= counts[column]
		}
		columns = append(columns, column)
	}
	slices.Sort(columns)
	if s.MaxNonzeros > 0 && len(columns) > s.MaxNonzeros {
		slices.SortStableFunc(columns, func(a, b int32) int {
			if math.Abs(sums[a]) > math.Abs(sums[b]) {
				return -1
			}
			return 1
		})
		columns = columns[:s.MaxNonzeros]
		slices.Sort(columns)
	}
	for _, column := range columns {
		values = append(values, float32(sums[column]))
	}
	return columns, values
}
