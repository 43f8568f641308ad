package arch

import (
	"math"
	"path"
	"path/filepath"
	"runtime"

	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// affine is y = x·Wᵀ + b in host memory. W is [out, in] row-major; b may be nil.
type affine struct {
	in, out int64
	weight  []float32
	bias    []float32
}

// joined is a.then(b), of which a packer that only counts needs the sizes alone.
func (p *packer) joined(a, b affine) affine {
	if p.sizing == nil {
		return a.then(b)
	}
	c := affine{in: a.in, out: b.out, weight: make([]float32, a.in*b.out)}
	if a.bias != nil || b.bias != nil {
		c.bias = make([]float32, b.out)
	}
	return c
}

// then returns the layer that applies a and then b in one step. It sums in float64, each row on its
// own, on all cores.
func (a affine) then(b affine) affine {
	c := affine{in: a.in, out: b.out, weight: make([]float32, a.in*b.out)}
	cores := int64(runtime.GOMAXPROCS(0))
	guard.Each(int(min(cores, b.out)), func(first int) {
		row := make([]float64, a.in)
		for o := int64(first); o < b.out; o += cores {
			clear(row)
			for m, w := range b.weight[o*b.in : (o+1)*b.in] {
				for i, v := range a.weight[int64(m)*a.in : int64(m+1)*a.in] {
					row[i] += float64(w) * float64(v)
				}
			}
			for i, v := range row {
				c.weight[o*a.in+int64(i)] = float32(v)
			}
		}
	})
	if a.bias == nil && b.bias == nil {
		return c
	}
	c.bias = make([]float32, b.out)
	for o := range c.bias {
		var sum float64
		if b.bias != nil {
			sum = float64(b.bias[o])
		}
		for m, v := range a.bias {
			sum += float64(b.weight[int64(o)*b.in+int64(m)]) * float64(v)
		}
		c.bias[o] = float32(sum)
	}
	return c
}

// pack packs the layer in p's class.
func (a affine) pack(p *packer, act engine.Act) layer {
	l := layer{act: act}
	l.weight = p.values(engine.LinearWeight, a.in, a.weight)
	if a.bias != nil {
		l.bias = p.values(engine.VectorWeight, 1, a.bias)
	}
	return l
}

// values packs numbers that were computed here, in rows of k columns.
func (p *packer) values(kind engine.WeightKind, k int64, values []float32) *engine.Weight {
	if p.err != nil {
		return nil
	}
	spec, rows := engine.WeightSpec{
		Kind: kind, Compute: p.compute, DType: engine.F32, K: k,
	}, int64(len(values))/k
	if p.sizing != nil {
		p.sizing.add(packedBytes(spec, rows), 2*4*int64(len(values))) // the values, and their bytes
		return nil
	}
	spec.Parts = []engine.Part{{Data: littleEndian(values), Rows: rows}}
	w, err := p.create(spec)
	p.fail(err)
	return w
}

// loadLinear packs `linear.weight` [n, columns], which Stanford's ColBERT saves with the encoder.
func loadLinear(columns int64, p *packer) (layer, int64, error) {
	const name = "linear.weight"
	t, ok := p.from.Tensor(name)
	if !ok || len(t.Shape) != 2 {
		return layer{}, 0, refuse(p.file, name,
			"no such matrix, and modules.json names no Dense module: this is not a ColBERT model")
	}
	q := p.head("", p.compute)
	l := layer{weight: q.linear(t.Shape[0], columns, name)}
	p.join(q)
	return l, t.Shape[0], p.err
}

// readAffine reads a Dense module into host memory and adds its residual connection to the matrix.
// The residual is the identity, or a separate matrix where the width changes, as in PyLate.
func readAffine(dir string, c denseConfig) (affine, error) {
	a := affine{in: c.in, out: c.out}
	checkpoint, err := weights.Open(filepath.Join(dir, filepath.FromSlash(c.module)))
	if err != nil {
		return a, err
	}
	defer checkpoint.Close()
	err = checkpoint.ReadError(a.read(c, checkpoint))
	return a, err
}

// read reads the module from an open checkpoint.
func (a *affine) read(c denseConfig, checkpoint *weights.Checkpoint) (err error) {
	p := &packer{from: checkpoint, file: path.Join(c.module, checkpoint.Name())}
	if a.weight, err = p.floats("linear.weight", c.out, c.in); err != nil {
		return err
	}
	if c.bias {
		if a.bias, err = p.floats("linear.bias", c.out); err != nil {
			return err
		}
	}
	if !c.residual {
		return nil
	}
	if c.act != engine.NoAct {
		return refuse(path.Join(c.module, configFile), "use_residual",
			"is supported without an activation function only")
	}
	if _, own := checkpoint.Tensor("residual.weight"); own {
		extra, err := p.floats("residual.weight", c.out, c.in)
		if err != nil {
			return err
		}
		for i, v := range extra {
			a.weight[i] += v
		}
		return nil
	}
	if c.in != c.out {
		return refuse(p.file, "residual.weight", "no such tensor; a residual from %d to %d columns needs it",
			c.in, c.out)
	}
	for i := range c.in {
		a.weight[i*c.in+i]++
	}
	return nil
}

// hostTensor reads a tensor of that shape, from which something is made here, and refuses one with
// a value that is not finite. A packer that only counts returns zeros.
func (p *packer) hostTensor(name string, shape ...int64) []float32 {
	if p.err != nil {
		return nil
	}
	if p.sizing == nil {
		values, err := p.floats(name, shape...)
		p.fail(err)
		for i, v := range values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				p.fail(refuse(p.file, p.prefix+name, "value %d is %v; it must be finite", i, v))
				return nil
			}
		}
		return values
	}
	_, _, err := p.find(p.prefix+name, shape)
	if goOn := p.sizing.found.note(p, p.prefix+name, err); err != nil && !goOn {
		p.fail(err)
	}
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	return make([]float32, count)
}

// floats reads a tensor of that shape.
func (p *packer) floats(name string, shape ...int64) ([]float32, error) {
	t, _, err := p.find(p.prefix+name, shape)
	if err != nil {
		return nil, err
	}
	return t.AppendFloat32(nil)
}

// readQueryTable reads the weights of the SparseStaticEmbedding module in dir's folder. There is
// one for each token id. Without a module it returns nil.
func readQueryTable(dir, folder string) ([]float32, error) {
	if folder == "" {
		return nil, nil
	}
	checkpoint, err := weights.Open(filepath.Join(dir, filepath.FromSlash(folder)))
	if err != nil {
		return nil, err
	}
	defer checkpoint.Close()
	p := &packer{from: checkpoint, file: path.Join(folder, checkpoint.Name())}
	t, ok := checkpoint.Tensor("weight")
	if !ok || len(t.Shape) != 1 {
		return nil, refuse(p.file, "weight",
			"no such vector; a SparseStaticEmbedding has a weight for each token")
	}
	table, err := p.floats("weight", t.Shape[0])
	if err != nil {
		return nil, err
	}
	for id, w := range table {
		if math.IsNaN(float64(w)) || math.IsInf(float64(w), 0) {
			return nil, refuse(p.file, "weight", "token %d has the weight %v; it must be finite", id, w)
		}
	}
	return table, nil
}
