package task_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	onesCount "math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Output types equal testdata/golden/quantise bit for bit, through the whole worker and with each
// instruction set of this machine. NumPy made the data in sie-server's post-processor: ties,
// constant rows, zeros, and values that float16 overflows or flushes.
func TestQuantisedBitForBit(t *testing.T) {
	c := golden.Open(t, "quantise")
	dense, multi := names(t, c, "dense"), names(t, c, "multivector")
	for _, isa := range append(engine.ISAs()[:2], engine.BestISA) {
		bounded := func(o *Options) { o.Devices[0].ISA = isa }
		for _, name := range dense {
			x, shape := c.Float32(name + ".x")
			r := start(t, bounded, nil, entry(t, "echo", echoModel(t, x, shape, false),
				"sentence_transformer", fmt.Sprintf("tasks: {encode: {dense: {dim: %d}}}", shape[1])))
			var tokens [][]int32
			for i := range shape[0] {
				tokens = append(tokens, []int32{int32(i + 1)})
			}
			for _, dtype := range []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"} {
				res := echo(r, tokens, "dense", dtype)
				sameBits(t, c, fmt.Sprintf("%v, %s", isa, name), name, dtype, slices.Concat(res.Rows...))
			}
		}
		for _, name := range multi {
			x, shape := c.Float32(name + ".x")
			m := loadtime(t, "echo", echoModel(t, x, shape, true), "colbert",
				fmt.Sprintf("tasks: {encode: {multivector: {dim: %d}}}", shape[1]),
				"{skip_special_tokens: false, doc_punctuation_skiplist: false}")
			r := start(t, bounded, nil, m)
			var tokens [][]int32
			cu := c.Int32(name + ".cu")
			for i := range len(cu) - 1 {
				var item []int32
				for j := cu[i]; j < cu[i+1]; j++ {
					item = append(item, j+1)
				}
				if item != nil { // every text has at least one token
					tokens = append(tokens, item)
				}
			}
			for _, dtype := range []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"} {
				var all []byte
				for i, m := range echo(r, tokens, "multivector", dtype).Multi {
					if m.Rows != len(tokens[i]) {
						t.Fatalf("%s: %d rows of %d tokens", name, m.Rows, len(tokens[i]))
					}
					all = append(all, m.Data...)
				}
				sameBits(t, c, fmt.Sprintf("%v, %s", isa, name), name, dtype, all)
			}
		}
	}
}

// names lists the golden inputs of this kind.
func names(t *testing.T, c *golden.Case, kind string) (out []string) {
	t.Helper()
	list, _ := c.Notes[kind].([]any)
	for _, n := range list {
		out = append(out, n.(string))
	}
	if len(out) < 3 {
		t.Fatalf("%d inputs of kind %s", len(out), kind)
	}
	return out
}

func echo(r *rig, tokens [][]int32, what, dtype string) *Result {
	r.T.Helper()
	res, err := r.Encode(r.T.Context(), &Request{
		Model:       "echo",
		Tokens:      tokens,
		OutputTypes: []string{what},
		OutputDType: dtype,
		Options:     map[string]any{"normalize": false},
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return res
}

// sameBits compares all rows with the golden ones. The sum that makes a row turns -0 into +0, which
// only float16 shows.
func sameBits(t *testing.T, c *golden.Case, what, name, dtype string, rows []byte) {
	t.Helper()
	x, _ := c.Float32(name + ".x")
	if dtype == "float32" {
		for i, got := range floats(rows) {
			if got != x[i] {
				t.Fatalf("%s: element %d is %v, want %v: the model is no echo", what, i, got, x[i])
			}
		}
		return
	}
	want, got := c.Int32(name+"."+strings.Replace(dtype, "ubinary", "binary", 1)), codesOf(dtype, rows)
	if len(got) != len(want) {
		t.Fatalf("%s, %s: %d elements, want %d", what, dtype, len(got), len(want))
	}
	for i := range want {
		if dtype == "float16" && x[i] == 0 && math.Signbit(float64(x[i])) {
			want[i] = 0
		}
		if got[i] != want[i] {
			t.Fatalf("%s, %s: element %d is %d, want %d", what, dtype, i, got[i], want[i])
		}
	}
}

// echoModel writes a model that gives exactly row t of x for token t+1. Word t+1 has row t+1 of a
// Hadamard matrix, whose ones and minus ones have mean 0, so that layers of zeros and their norms
// do not change it. A first Dense turns it into the unit vector t; a second has the rows of x as
// its columns. With late, each token gives a row, as in PyLate's models; otherwise the last token
// does.
func echoModel(t *testing.T, x []float32, shape []int, late bool) string {
	t.Helper()
	const wide = 32
	n, columns := shape[0], shape[1]
	if n >= wide {
		t.Fatalf("%d rows; this model has room for %d", n, wide-1)
	}
	hadamard := func(i, j int) float32 { return 1 - 2*float32(onesCount.OnesCount(uint(i&j))%2) }
	dir := withTokenizer(t, "st-last-dense-identity", "st-last-dense-identity", nil)
	model := readTensors(t, filepath.Join(dir, "model.safetensors"))
	for name, m := range model {
		clear(m.data)
		for i := range m.data {
			switch {
			case strings.HasSuffix(name, "LayerNorm.weight"):
				m.data[i] = 1
			case name == "embeddings.word_embeddings.weight" && i < wide*wide:
				m.data[i] = hadamard(i/wide, i%wide)
			}
		}
	}
	writeTensors(t, filepath.Join(dir, "model.safetensors"), model)

	units, rows := make([]float32, wide*wide), make([]float32, columns*wide)
	for i := range n {
		// Packing flushes denormals, but a product does not. A row with a denormal is scaled up,
		// and its unit vector down by as much.
		scale := float32(1)
		if slices.ContainsFunc(x[i*columns:(i+1)*columns], denormal) {
			scale = 0x1p64
		}
		for j := range wide {
			units[i*wide+j] = hadamard(i+1, j) / wide / scale
		}
		for j := range columns {
			rows[j*wide+i] = x[i*columns+j] * scale
		}
	}
	kind := "sentence_transformers.models."
	modules := []map[string]any{{"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"}}
	if late {
		kind = "pylate.models.Dense."
	} else {
		modules = append(modules,
			map[string]any{"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"})
	}
	// ReLU keeps unit vectors, and keeps the two layers from being merged
	activations := []string{"activation.ReLU", "linear.Identity"}
	for i, w := range []matrix{{units, []int{wide, wide}}, {rows, []int{columns, wide}}} {
		path := fmt.Sprintf("%d_Dense", i+2)
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
		writeTensors(t, filepath.Join(dir, path, "model.safetensors"), map[string]matrix{"linear.weight": w})
		writeJSON(t, filepath.Join(dir, path, "config.json"), map[string]any{
			"in_features":         wide,
			"out_features":        w.shape[0],
			"bias":                false,
			"activation_function": "torch.nn.modules." + activations[i],
		})
		modules = append(modules,
			map[string]any{"idx": len(modules), "name": path, "path": path, "type": kind + "Dense"})
	}
	writeJSON(t, filepath.Join(dir, "modules.json"), modules)
	return dir
}

func denormal(x float32) bool { return x != 0 && x > -0x1p-126 && x < 0x1p-126 }

// matrix is a tensor of float32.
type matrix struct {
	data  []float32
	shape []int
}

// readTensors reads a safetensors file of float32.
func readTensors(t *testing.T, path string) map[string]matrix {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := 8 + binary.LittleEndian.Uint64(data)
	var header map[string]struct {
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:end], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	out := map[string]matrix{}
	for name, h := range header {
		out[name] = matrix{floats(data[end:][h.Offsets[0]:h.Offsets[1]]), h.Shape}
	}
	return out
}

func writeTensors(t *testing.T, path string, tensors map[string]matrix) {
	t.Helper()
	header, data := map[string]any{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		from := len(data)
		for _, v := range tensors[name].data {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		header[name] = map[string]any{
			"dtype": "F32", "shape": tensors[name].shape, "data_offsets": []int{from, len(data)},
		}
	}
	head, err := json.Marshal(header)
	if err == nil {
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
		err = os.WriteFile(path, append(file, data...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
