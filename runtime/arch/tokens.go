package arch

import (
	"errors"
	"io/fs"
	"math"
	"path"
	"path/filepath"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// Heads over the vectors of tokens: ColBERT's projection (Khattab 2020, arXiv:2004.12832) and
// BGE-M3's (Chen 2024, arXiv:2402.03216).

// The files of BGE-M3's heads, in the encoder's folder.
const (
	m3Vectors = "colbert_linear.pt"
	m3Weights = "sparse_linear.pt"
)

// affine is y = x·Wᵀ + b in host memory. W is [out, in] row-major; b may be nil.
type affine struct {
	in, out int64
	weight  []float32
	bias    []float32
}

// then returns the layer that applies a and then b in one step. It sums in float64.
func (a affine) then(b affine) affine {
	c := affine{in: a.in, out: b.out, weight: make([]float32, a.in*b.out)}
	row := make([]float64, a.in)
	for o := range b.out {
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
	spec, rows := engine.WeightSpec{Kind: kind, Compute: p.compute, DType: engine.F32, K: k}, int64(len(values))/k
	if p.sizing != nil {
		p.sizing.add(packedBytes(spec, rows), 2*4*int64(len(values))) // the values, and their bytes
		return nil
	}
	spec.Parts = []engine.Part{{Data: littleEndian(values), Rows: rows}}
	w, err := p.dev.NewWeight(spec)
	if err != nil {
		p.fail(err)
		return nil
	}
	p.packed = append(p.packed, w)
	p.bytes += w.Bytes()
	p.denormals += w.Denormals()
	return w
}

// readTokenChain reads modules.json of a ColBERT model. It returns the folder of the encoder and
// the Dense modules over its tokens. Pooling and Normalize have no effect here.
func readTokenChain(dir fs.FS) (encoderDir string, _ []denseConfig, _ error) {
	modules, err := readModules(dir)
	if err != nil {
		return "", nil, err
	}
	var dense []denseConfig
	for i, m := range modules {
		switch {
		case (m.kind == "Transformer") != (i == 0):
			return "", nil, refuse(modulesFile, "type", "module %d is a %s; the chain must begin with its only Transformer", i, m.kind)
		case i == 0:
			encoderDir = m.path
		case m.kind == "Dense":
			d, err := readDense(dir, m.path, "token_embeddings")
			if err != nil {
				return "", nil, err
			}
			dense = append(dense, d)
		case m.kind != "Pooling" && m.kind != "Normalize" && m.kind != "Dropout":
			return "", nil, refuse(modulesFile, "type", "%q is not supported; Transformer and Dense are", m.class)
		}
	}
	return encoderDir, dense, nil
}

// loadProjection packs the layers that turn a token's state into its vector. They are the Dense
// modules of the chain, or without any the matrix `linear.weight` of the checkpoint. Layers without
// activation are multiplied into the layer after them. It also returns the number of columns of a
// vector.
func loadProjection(dir string, modules []denseConfig, columns int64, p *packer) ([]layer, int64, error) {
	if len(modules) == 0 {
		l, n, err := loadLinear(columns, p)
		return []layer{l}, n, err
	}
	var out []layer
	var pending *affine
	for _, c := range modules {
		if c.in != columns {
			return nil, 0, refuse(path.Join(c.module, configFile), "in_features", "is %d; the module before gives %d", c.in, columns)
		}
		a, err := readAffine(dir, c)
		if err != nil {
			return nil, 0, err
		}
		if pending != nil {
			a = pending.then(a)
		}
		if pending, columns = &a, c.out; c.act != engine.NoAct {
			out, pending = append(out, a.pack(p, c.act)), nil
		}
	}
	if pending != nil {
		out = append(out, pending.pack(p, engine.NoAct))
	}
	return out, columns, p.err
}

// loadLinear packs `linear.weight` [n, columns], which Stanford's ColBERT saves with the encoder.
func loadLinear(columns int64, p *packer) (layer, int64, error) {
	const name = "linear.weight"
	t, ok := p.from.Tensor(name)
	if !ok || len(t.Shape) != 2 {
		return layer{}, 0, refuse(p.file, name, "no such matrix, and modules.json names no Dense module: this is not a ColBERT model")
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
	err = checkpoint.Settle(a.read(c, checkpoint))
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
		return refuse(path.Join(c.module, configFile), "use_residual", "is supported without an activation function only")
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
		return refuse(p.file, "residual.weight", "no such tensor; a residual from %d to %d columns needs it", c.in, c.out)
	}
	for i := range c.in {
		a.weight[i*c.in+i]++
	}
	return nil
}

// floats reads a tensor of that shape.
func (p *packer) floats(name string, shape ...int64) ([]float32, error) {
	t, _, err := p.find(p.prefix+name, shape)
	if err != nil {
		return nil, err
	}
	return t.AppendFloat32(nil)
}

// loadM3 packs BGE-M3's two heads: a vector and a weight for each token.
func loadM3(dir string, columns int64, p *packer) (vectors, weight layer, width int64, _ error) {
	for _, head := range []struct {
		file string
		to   *layer
		act  engine.Act
		rows int64 // 0: as many as the file has
	}{{m3Vectors, &vectors, engine.NoAct, 0}, {m3Weights, &weight, engine.ReLU, 1}} {
		checkpoint, err := weights.OpenFile(filepath.Join(dir, head.file))
		if errors.Is(err, fs.ErrNotExist) {
			err = refuse(head.file, "", "is missing; download the model again")
		}
		if err != nil {
			return vectors, weight, 0, err
		}
		q := &packer{dev: p.dev, from: checkpoint, file: head.file, compute: p.compute, buffer: p.buffer, sizing: p.sizing}
		rows := head.rows
		if t, ok := checkpoint.Tensor("weight"); rows == 0 && ok && len(t.Shape) == 2 {
			rows, width = t.Shape[0], t.Shape[0]
		}
		*head.to = layer{weight: q.linear(rows, columns, "weight"), bias: q.vector(rows, "bias"), act: head.act}
		q.err = checkpoint.Settle(q.err)
		checkpoint.Close()
		p.join(q)
		if p.err != nil {
			return vectors, weight, 0, p.err
		}
	}
	return vectors, weight, width, nil
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
		return nil, refuse(p.file, "weight", "no such vector; a SparseStaticEmbedding has a weight for each token")
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
