package arch

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// The files of BGE-M3's heads, in the encoder's folder.
const (
	m3Vectors = "colbert_linear.pt"
	m3Weights = "sparse_linear.pt"
)

// OutTokenWeights is values [R, 1]: the lexical weight of each token, relu applied.
const OutTokenWeights Output = "token_weights"

// BGEM3 is the task of BGE-M3 (Chen 2024, arXiv:2402.03216). One pass gives a dense vector, and a
// weight and a vector for each token.
var BGEM3 = Task{&head{
	name:    "bge_m3",
	outputs: []Output{OutDense, OutTokenWeights, OutMulti},
	files:   []string{m3Vectors, m3Weights},
	read: func(dir fs.FS) (chain, loader, error) {
		c, err := readChain(dir)
		if err == nil && c.pooling.skipsPrompt {
			err = refuse(c.pooling.file, "include_prompt",
				"is false; pooling without the prompt's tokens is not supported beside vectors of tokens")
		}
		return c, func(l *loading) error {
			vectors, weight, width, err := loadM3(l.folder(), l.shape.columns, l.p)
			if err != nil {
				return err
			}
			l.givesDense()
			l.gives(OutTokenWeights, given{
				rows:   engine.PoolMean,
				record: func(r *recording) { r.OutputValues(weight.apply(r.Recorder, r.x)) },
			})
			l.givesVectors([]layer{vectors}, width)
			return nil
		}, err
	},
}}

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
		q := &packer{
			dev:     p.dev,
			from:    checkpoint,
			file:    head.file,
			compute: p.compute,
			group:   p.group,
			buffer:  p.buffer,
			sizing:  p.sizing,
		}
		rows := head.rows
		if t, ok := checkpoint.Tensor("weight"); rows == 0 && ok && len(t.Shape) == 2 {
			rows, width = t.Shape[0], t.Shape[0]
		}
		*head.to = layer{
			weight: q.linear(rows, columns, "weight"), bias: q.vector(rows, "bias"), act: head.act,
		}
		q.err = checkpoint.ReadError(q.err)
		checkpoint.Close()
		p.join(q)
		if p.err != nil {
			return vectors, weight, 0, p.err
		}
	}
	return vectors, weight, width, nil
}
