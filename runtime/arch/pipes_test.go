package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
)

// A named pipe in place of a model's file delays no load. That holds for the files that the model
// has and for those that a loader looks for. The load fails at once and names the file, or does not
// need it.
func TestPipesInAModel(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	wanted := slices.Concat(transformerFiles, []string{
		modulesFile, configFile, promptsFile, limitsFile, tokenizerFile, adapterFile, "router_config.json",
		"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
		"pytorch_model.bin.index.json", m3Vectors, m3Weights, "1_Pooling/config.json",
	})
	for _, c := range []struct {
		dir     string
		task    Task
		refused []string // some of the files that are read
	}{
		{"st-mean-dense-tanh-normalize-prompts", Embed, []string{
			configFile, modulesFile, promptsFile, limitsFile, "1_Pooling/config.json", "2_Dense/config.json",
			"2_Dense/model.safetensors", "model.safetensors",
		}},
		{"st-xlmr-mean-torch", Embed,
			[]string{"pytorch_model.bin", "model.safetensors", "model.safetensors.index.json"}},
		{"bge-m3", BGEM3, []string{m3Vectors, m3Weights, "pytorch_model.bin"}},
		{"splade-bert", Splade, []string{"1_SpladePooling/config.json"}},
		{"colbert-dense", ColBERT, []string{"1_Dense/config.json", "1_Dense/model.safetensors"}},
		{"classify-bert", Classify, []string{configFile}},
		{"saved-router/6.2.0", Splade, []string{"router_config.json"}},
		{"albert-groups", Embed, []string{configFile}},
	} {
		from := golden.Open(t, c.dir).Dir
		names := slices.Clone(wanted)
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				name, _ := filepath.Rel(from, path)
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		if m, err := Load(dir, dev, Options{Task: c.task}); err != nil {
			t.Fatalf("%s: %v", c.dir, err)
		} else {
			m.Close()
		}
		for _, name := range slices.Compact(names) {
			path, kept := filepath.Join(dir, name), filepath.Join(dir, "kept")
			there := os.Rename(path, kept) == nil
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			var failure error
			testrig.WithoutPipe(t, func() {
				_, _, _ = Detect(dir)
				_, sized := SizeOf(dir, dev, Options{Task: c.task})
				m, err := Load(dir, dev, Options{Task: c.task})
				if m != nil {
					m.Close()
				}
				if failure = err; (err == nil) != (sized == nil) {
					t.Errorf("%s: without %s its size is refused with %v, and the load with %v",
						c.dir, name, sized, err)
				}
			}, path)
			says := failure != nil && strings.Contains(failure.Error(), filepath.Base(name)) &&
				strings.Contains(failure.Error(), "not a regular file")
			if failure != nil && !says || failure == nil && slices.Contains(c.refused, name) {
				t.Errorf("%s: a pipe in place of %s: %v", c.dir, name, failure)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if there {
				if err := os.Rename(kept, path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
