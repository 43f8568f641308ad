package arch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// manyWidths returns a copy of a golden model as stella's repositories are: the Dense module of the
// reference is in 2_Dense_24, and modules.json names another one of another width.
func manyWidths(t *testing.T, c *golden.Case) string {
	t.Helper()
	dir := edit(t, c.Dir, "2_Dense/"+configFile, nil)
	if err := os.Rename(filepath.Join(dir, "2_Dense"), filepath.Join(dir, "2_Dense_24")); err != nil {
		t.Fatal(err)
	}
	other := golden.Open(t, "st-mean-dense-tanh-normalize-prompts").Dir
	err := os.CopyFS(filepath.Join(dir, "2_Dense"), os.DirFS(filepath.Join(other, "2_Dense")))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A Dense module that the options name stands in place of the chain's.
func TestDenseModuleByName(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	c := golden.Open(t, "st-qwen2-dense")
	dir := manyWidths(t, c)
	o := Options{Task: Embed, Compute: engine.ComputeF32}
	chosen, _ := load(t, dev, dir, o)
	if chosen.Dim != 20 {
		t.Errorf("the chain's Dense gives %d columns, want 20", chosen.Dim)
	}
	o.Dense = "2_Dense_24"
	m, r := load(t, dev, dir, o)
	if m.Dim != 24 || !m.Normalize {
		t.Fatalf("%d columns, normalised %v", m.Dim, m.Normalize)
	}
	reference, _ := c.Float32("vectors")
	if d := golden.Compare(embed(t, m, r, goldenBatch(c), m.Normalize), reference); d.MaxAbs > 1e-5 {
		t.Errorf("%v", d)
	}
	size, err := SizeOf(dir, dev, o)
	o.Dense = ""
	if other, err2 := SizeOf(dir, dev, o); err != nil || err2 != nil || size.Packed <= other.Packed {
		t.Errorf("%+v with 24 columns, %+v with 20; %v, %v", size, other, err, err2)
	}
}

// The same module in the file of older releases of sentence-transformers.
func TestDenseModuleInATorchFile(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	c := golden.Open(t, "st-qwen2-dense")
	dir := edit(t, c.Dir, "2_Dense/"+configFile, nil)
	older := filepath.Join(golden.Root(t), "st-qwen2-dense-torch")
	err := os.CopyFS(filepath.Join(dir, "2_Dense_24"), os.DirFS(filepath.Join(older, "2_Dense_24")))
	if err != nil {
		t.Fatal(err)
	}
	m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32, Dense: "2_Dense_24"})
	reference, _ := c.Float32("vectors")
	if d := golden.Compare(embed(t, m, r, goldenBatch(c), m.Normalize), reference); d.MaxAbs > 1e-5 {
		t.Errorf("%v", d)
	}
}

// Without a modules.json the Dense module stands behind the mean.
func TestDenseModuleByNameWithoutAChain(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	c := golden.Open(t, "st-qwen2-dense")
	dir := manyWidths(t, c)
	if err := os.Remove(filepath.Join(dir, modulesFile)); err != nil {
		t.Fatal(err)
	}
	m, r := load(t, dev, dir, Options{Task: Embed, Compute: engine.ComputeF32, Dense: "2_Dense_24"})
	reference, _ := c.Float32("vectors")
	if d := golden.Compare(embed(t, m, r, goldenBatch(c), true), reference); d.MaxAbs > 1e-5 {
		t.Errorf("%v", d)
	}
}

func TestBadNamesOfADenseModule(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	dir := manyWidths(t, golden.Open(t, "st-qwen2-dense"))
	o := Options{Task: Embed}
	for name, says := range map[string][]string{
		"2_Dense_1024": {"dense_projection_path", `"2_Dense_1024"`, "2_Dense", "2_Dense_24"},
		"../2_Dense":   {"dense_projection_path", "leads out of the model directory"},
		"/etc":         {"dense_projection_path", "leads out of the model directory"},
		"1_Pooling":    {"1_Pooling/config.json: in_features", "1 to 65536"},
	} {
		o.Dense = name
		_, err := Load(dir, dev, o)
		refusedWith(t, err, name, says...)
	}
	wide := edit(t, dir, "2_Dense_24/"+configFile, map[string]any{"in_features": 31})
	_, err := Load(wide, dev, Options{Task: Embed, Dense: "2_Dense_24"})
	refusedWith(t, err, "a width that does not fit", "2_Dense_24/config.json: in_features", "is 31",
		"the module before gives 32")
	_, err = Load(dir, dev, Options{Task: ColBERT, Dense: "2_Dense_24"})
	refusedWith(t, err, "another task", "dense_projection_path", "colbert")
}
