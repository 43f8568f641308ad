package weightstest

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
)

// Published says what the files of a published model hold, without their weights. tools/published
// makes such files.
type Published struct {
	ID      string                     `json:"id"`
	Source  map[string]string          `json:"source"` // of each part: read or derived, and from what
	Files   map[string]json.RawMessage `json:"files"`  // configuration; a text is a file that is not JSON
	Weights []PublishedFile            `json:"weights"`
}

// PublishedFile is one checkpoint of a model. Names of tensors may hold one range, "{0-11}".
type PublishedFile struct {
	File    string                   `json:"file"`
	DType   weights.DType            `json:"dtype"`
	DTypes  map[string]weights.DType `json:"dtypes"` // of tensors with another type
	Shards  int                      `json:"shards"`
	Tensors map[string][]int64       `json:"tensors"` // shapes
}

// ReadPublished reads the models of a folder, by id.
func ReadPublished(tb testing.TB, folder string) map[string]*Published {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(names) == 0 {
		tb.Fatalf("weightstest: no models in %s: %v", folder, err)
	}
	out := make(map[string]*Published, len(names))
	for _, name := range names {
		raw, err := os.ReadFile(name)
		p := new(Published)
		if err == nil {
			err = json.Unmarshal(raw, p)
		}
		if err != nil {
			tb.Fatalf("weightstest: %s: %v", name, err)
		}
		if want := strings.ReplaceAll(p.ID, "/", "__") + ".json"; filepath.Base(name) != want {
			tb.Fatalf("weightstest: %s holds %s", name, p.ID)
		}
		out[p.ID] = p
	}
	return out
}

// Write writes the model into dir: its configuration, and checkpoints that have their headers and
// size but take no space on the disk. A pytorch_model.bin is written as safetensors, with its
// tensors. The test is skipped where the file system has no sparse files.
func (p *Published) Write(tb testing.TB, dir string) {
	tb.Helper()
	for name, content := range p.Files {
		var text string
		if json.Unmarshal(content, &text) == nil {
			content = json.RawMessage(text)
		}
		writeAll(tb, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	for _, f := range p.Weights {
		tensors := f.All()
		at := filepath.Join(dir, filepath.FromSlash(f.File))
		switch base := path.Base(f.File); {
		case strings.HasSuffix(base, ".pt"):
			writeAll(tb, at, Torch(tensors...))
		case f.Shards > 1:
			writeSparseShards(tb, filepath.Dir(at), f.Shards, tensors)
		default:
			writeSparse(tb, filepath.Join(filepath.Dir(at), weights.SingleFile), tensors)
		}
	}
}

// All returns the tensors, without data, sorted by name.
func (f *PublishedFile) All() []Tensor {
	var out []Tensor
	for pattern, shape := range f.Tensors {
		for _, name := range expand(pattern) {
			t := Tensor{Name: name, DType: f.DType, Shape: shape}
			if other, ok := f.DTypes[name]; ok {
				t.DType = other
			}
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// With returns the model with other tensors in its first checkpoint. Those for which change returns
// false are left out; the others have the shape that it returns. One more is a vector named more.
func (p *Published) With(change func(name string, shape []int64) ([]int64, bool), more string) *Published {
	out := *p
	out.Weights = slices.Clone(p.Weights)
	first := &out.Weights[0]
	all := first.All()
	first.Tensors = map[string][]int64{more: {1}}
	for _, t := range all {
		if shape, ok := change(t.Name, t.Shape); ok {
			first.Tensors[t.Name] = shape
		}
	}
	return &out
}

// expand returns the names of a pattern with a range such as {0-11}, or the pattern itself.
func expand(pattern string) []string {
	head, rest, ok := strings.Cut(pattern, "{")
	within, tail, closed := strings.Cut(rest, "}")
	from, to, ranged := strings.Cut(within, "-")
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if !ok {
		return []string{pattern}
	}
	if !closed || !ranged || err1 != nil || err2 != nil || last < first {
		panic("weightstest: no pattern: " + pattern)
	}
	var out []string
	for i := first; i <= last; i++ {
		out = append(out, head+strconv.Itoa(i)+tail)
	}
	return out
}

func writeSparseShards(tb testing.TB, dir string, shards int, tensors []Tensor) {
	tb.Helper()
	index := map[string]string{}
	per := (len(tensors) + shards - 1) / shards
	for i, part := range slices.Collect(slices.Chunk(tensors, per)) {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		writeSparse(tb, filepath.Join(dir, name), part)
		for _, t := range part {
			index[t.Name] = name
		}
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": index})
	if err != nil {
		tb.Fatal(err)
	}
	writeAll(tb, filepath.Join(dir, weights.IndexFile), raw)
}

// writeSparse writes a safetensors file whose data is a hole.
func writeSparse(tb testing.TB, at string, tensors []Tensor) {
	tb.Helper()
	var header strings.Builder
	end := int64(0)
	for i, t := range tensors {
		begin := end
		end += elements(t.Shape) * t.DType.Bits() / 8
		shape, _ := json.Marshal(t.Shape)
		fmt.Fprintf(&header, "%s%q:{\"dtype\":%q,\"shape\":%s,\"data_offsets\":[%d,%d]}",
			[]string{"{", ","}[min(i, 1)], t.Name, string(t.DType), shape, begin, end)
	}
	writeAll(tb, at, File(header.String()+"}", nil))
	info, err := os.Stat(at)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Truncate(at, info.Size()+end); err != nil {
		tb.Skipf("no sparse files here: %v", err)
	}
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

func writeAll(tb testing.TB, at string, content []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(at, content, 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Torch returns a file as torch.save writes a dict of F32 tensors full of zeros.
func Torch(tensors ...Tensor) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name string, content []byte) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "archive/" + name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			panic(err)
		}
	}
	add("data.pkl", torchPickle(tensors))
	for i, t := range tensors {
		add("data/"+strconv.Itoa(i), make([]byte, 4*elements(t.Shape)))
	}
	add("version", []byte("3\n"))
	if err := z.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// torchPickle returns the pickle of a dict of names and tensors, in protocol 2.
func torchPickle(tensors []Tensor) []byte {
	var p bytes.Buffer
	text := func(s string) {
		p.WriteByte('X')
		p.Write([]byte{byte(len(s)), byte(len(s) >> 8), 0, 0})
		p.WriteString(s)
	}
	number := func(n int64) { p.Write([]byte{'J', byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) }
	tuple := func(numbers []int64) {
		p.WriteByte('(')
		for _, n := range numbers {
			number(n)
		}
		p.WriteByte('t')
	}
	p.WriteString("\x80\x02}(")
	for i, t := range tensors {
		text(t.Name)
		p.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
		text("storage")
		p.WriteString("ctorch\nFloatStorage\n")
		text(strconv.Itoa(i))
		text("cpu")
		number(elements(t.Shape))
		p.WriteString("tQ")
		number(0)
		tuple(t.Shape)
		strides := make([]int64, len(t.Shape))
		next := int64(1)
		for at := len(t.Shape) - 1; at >= 0; at-- {
			strides[at] = next
			next *= t.Shape[at]
		}
		tuple(strides)
		p.WriteString("\x89ccollections\nOrderedDict\n)RtR")
	}
	p.WriteString("u.")
	return p.Bytes()
}
