//go:build native && cuda

package arch

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights/weightstest"
)

// inPart checks one part of a test's models on a card in a class.
type inPart func(t *testing.T, dev *engine.Device, compute engine.Compute, part int)

// GLiNER models on GPUs, four of them in a turn: the states of tokens, words and labels, every
// logit, and the bits of a text alone and in company.
func TestGPUGLiNER(t *testing.T) {
	const parts = 2
	inTurn(t, parts, func(t *testing.T, dev *engine.Device, compute engine.Compute, part int) {
		for i, name := range glinerCases {
			if i%parts != part {
				continue
			}
			c := golden.Open(t, name)
			t.Run(name, func(t *testing.T) {
				checkGLiNERStates(t, dev, c, compute)
				checkGLiNERLogits(t, dev, c, compute)
				checkGLiNERAlone(t, dev, c, compute)
			})
		}
	})
}

// GLiNER models with relations on GPUs, one in a turn.
func TestGPUGLiNERRelations(t *testing.T) {
	inTurn(t, len(relexCases), func(t *testing.T, dev *engine.Device, compute engine.Compute, part int) {
		c := golden.Open(t, relexCases[part])
		checkRelex(t, dev, c, compute)
		checkRelexAlone(t, dev, c, compute)
	})
}

// GLiNER bi-encoders on GPUs, one in a turn: the label towers of the golden models have heads that
// GPUs refuse; with heads of 32 columns, rows of labels and logits are those of the CPU.
func TestGPUGLiNERBi(t *testing.T) {
	inTurn(t, len(glinerBiCases), func(t *testing.T, dev *engine.Device, compute engine.Compute, part int) {
		name := glinerBiCases[part]
		c := golden.Open(t, name)
		_, err := Load(c.Dir, dev, Options{Task: Spans})
		refusedWith(t, err, name, glinerFile+": labels_encoder_config.num_attention_heads",
			"GPUs have no kernel for", "--device cpu")
		c.Dir = withTower(t, c.Dir, 32)
		of := func(dev *engine.Device, compute engine.Compute) (rows, logits []float32) {
			m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
			for _, row := range labelRows(t, m, r, c, upTo(len(c.Int32("cu_label_ids"))-1)) {
				rows = append(rows, row...)
			}
			return rows, biLogits(t, m, r, c)
		}
		rows, logits := of(dev, compute)
		wantRows, wantLogits := of(open(t, engine.Options{}), engine.ComputeF32)
		compareValues(t, "rows of labels", compute, rows, wantRows)
		compareValues(t, "logits", compute, logits, wantLogits)
		checkGLiNERBiAlone(t, dev, c, compute)
	})
}

// withTower copies a bi-encoder and gives it a label tower of other weights, with one head of
// `columns` columns.
func withTower(t *testing.T, from string, columns int64) string {
	t.Helper()
	const key, prefix = "labels_encoder_config", "token_rep_layer.labels_"
	var c glinerConfig
	tower := map[string]any{}
	if err := readJSON(os.DirFS(from), glinerFile, &c); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(c.LabelsEncoderConfig, &tower); err != nil {
		t.Fatal(err)
	}
	was := tower["hidden_size"]
	for name, value := range tower { // hidden_size, and intermediate_size where it is as much
		if value == was {
			tower[name] = columns
		}
	}
	tower["num_attention_heads"] = 1
	dir := edit(t, from, glinerFile, map[string]any{key: tower})
	tensors := slices.DeleteFunc(readAllFrom(t, from, "model.safetensors"),
		func(x weightstest.Tensor) bool { return strings.HasPrefix(x.Name, prefix+"projection") })
	random := rand.New(rand.NewPCG(22, 0))
	values := func(name string, shape ...int64) weightstest.Tensor {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = (random.Float32() - 0.5) / 2
			if strings.HasSuffix(name, "LayerNorm.weight") {
				v[i]++
			}
		}
		return weightstest.Float32(name, shape, v...)
	}
	for i, x := range tensors {
		if strings.HasPrefix(x.Name, prefix) {
			for j := range x.Shape {
				if float64(x.Shape[j]) == was {
					x.Shape[j] = columns
				}
			}
			tensors[i] = values(x.Name, x.Shape...)
		}
	}
	tensors = append(tensors, values(prefix+"projection.weight", c.Hidden, columns),
		values(prefix+"projection.bias", c.Hidden))
	file := filepath.Join(dir, "model.safetensors")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, weightstest.Encode(nil, tensors...))
	return dir
}

// GLiClass models on GPUs, a sixth of the variants in a turn: their logits, or their refusal where
// GPUs have no kernel for them.
func TestGPUGLiClass(t *testing.T) {
	const parts = 6
	inTurn(t, parts, func(t *testing.T, dev *engine.Device, compute engine.Compute, part int) {
		checkGLiClass(t, dev, compute, part, parts)
		c := golden.Open(t, "gliclass-modern")
		for _, pooler := range []string{"sum", "rms", "abs_max", "abs_avg"} {
			dir := changedConfig(t, c.Dir, map[string]any{"pooling_strategy": pooler})
			_, err := Load(dir, dev, Options{Task: GLiClass})
			refusedWith(t, err, pooler, "config.json: pooling_strategy: is "+pooler, "--device cpu")
		}
		for _, name := range []string{"hopfield", "cross"} {
			_, err := Load(golden.Open(t, "gliclass-"+name).Dir, dev, Options{Task: GLiClass})
			refusedWith(t, err, name, "config.json: scorer_type: is "+name, "--device cpu")
		}
	})
}
