package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

func TestModuleChains(t *testing.T) {
	dev := open(t, engine.Options{})
	for _, want := range []struct {
		name          string
		dim, longest  int
		pooling       engine.Pooling
		normalize     bool
		prompts       int
		defaultPrompt string
	}{
		{"st-cls-normalize", 32, 120, engine.PoolCLS, true, 2, ""},
		{"st-mean", 32, 40, engine.PoolMean, false, 2, ""},
		{"st-last-dense-identity", 48, 120, engine.PoolLast, false, 2, ""},
		{"st-mean-dense-tanh-normalize-prompts", 20, 64, engine.PoolMean, true, 3, "query"},
		{"st-xlmr-mean-torch", 64, 32, engine.PoolMean, true, 3, ""},
		{"st-qwen3-last", 32, 64, engine.PoolLast, true, 2, ""},
		{"st-qwen2-dense", 24, 64, engine.PoolMean, true, 3, ""},
		{"st-gemma", 16, 60, engine.PoolMean, true, 3, ""},
	} {
		t.Run(want.name, func(t *testing.T) {
			c := golden.Open(t, want.name)
			m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: engine.ComputeF32})
			if m.Dim != want.dim || m.MaxSeqLen != want.longest || m.Pooling != want.pooling ||
				m.Normalize != want.normalize || len(m.Prompts) != want.prompts ||
				m.DefaultPrompt != want.defaultPrompt {
				t.Errorf("read as dim %d, longest %d, %v, normalize %v, prompts %v, default %q; expected %+v",
					m.Dim, m.MaxSeqLen, m.Pooling, m.Normalize, m.Prompts, m.DefaultPrompt, want)
			}
			reference, shape := c.Float32("vectors")
			got := embed(t, m, r, goldenBatch(c), m.Normalize)
			for i := range shape[0] {
				d := golden.Compare(got[i*m.Dim:(i+1)*m.Dim], reference[i*m.Dim:(i+1)*m.Dim])
				if d.MaxAbs > 1e-5 {
					t.Errorf("text %d: %v", i, d)
				}
			}
		})
	}
}

// Options override the chain.
func TestOptionsOverrideTheChain(t *testing.T) {
	dev := open(t, engine.Options{})
	no := false
	c := golden.Open(t, "st-cls-normalize")
	m, r := load(t, dev, c.Dir, Options{
		Task:      Embed,
		Compute:   engine.ComputeF32,
		Pooling:   engine.PoolMean,
		Normalize: &no,
		MaxSeqLen: 64,
		MaxTokens: 200,
		MaxSeqs:   7,
	})
	if m.Pooling != engine.PoolMean || m.Normalize || m.MaxSeqLen != 64 ||
		m.Caps(false) != (engine.Caps{MaxTokens: 200, MaxSeqs: 7, MaxLen: 64}) {
		t.Errorf("pooling %v, normalize %v, longest %d, caps %+v",
			m.Pooling, m.Normalize, m.MaxSeqLen, m.Caps(false))
	}
	cls, _ := load(t, dev, c.Dir, Options{Task: Embed, Compute: engine.ComputeF32})
	b := goldenBatch(c).pick(1)
	if sameBits(embed(t, m, r, b, false), embed(t, cls, r, b, false)) == nil {
		t.Error("mean pooling gives what cls pooling gives")
	}
	again, err := cls.RecordPooling(engine.PoolMean)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	run := engine.Batch{Program: again, IDs: b.ids, CuSeqlens: b.cu}
	run.Items[0] = []engine.OutItem{{DType: engine.F32}}
	run.OutBytes[0] = int64(m.Dim * 4)
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	if err := sameBits(floats(run.Out[0]), embed(t, m, r, b, false)); err != nil {
		t.Errorf("a second program with mean pooling: %v", err)
	}
	long, _ := load(t, dev, c.Dir, Options{Task: Embed, MaxSeqLen: 4096})
	if long.MaxSeqLen != 120 {
		t.Errorf("max_seq_len 4096 of a model of 120 positions became %d", long.MaxSeqLen)
	}
}

// A directory without modules.json is an encoder with mean pooling and normalised vectors.
func TestPlainEncoder(t *testing.T) {
	dev := open(t, engine.Options{})
	m, _ := load(t, dev, golden.Open(t, "bert-gelutanh-h64").Dir, Options{Task: Embed})
	if m.Pooling != engine.PoolMean || !m.Normalize || m.MaxSeqLen != 80 || m.Prompts != nil {
		t.Errorf("pooling %v, normalize %v, longest %d, prompts %v",
			m.Pooling, m.Normalize, m.MaxSeqLen, m.Prompts)
	}
}

// edit returns a copy of a case's directory in which one JSON file is changed. A nil value deletes
// the key.
func edit(t *testing.T, from, file string, change map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	editIn(t, dir, file, change)
	return dir
}

// editIn changes keys of a JSON file in dir, and returns what restores it; nil removes a key.
func editIn(t *testing.T, dir, file string, change map[string]any) (restore func()) {
	t.Helper()
	path := filepath.Join(dir, file)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(before, &config); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		if v == nil {
			delete(config, k)
		} else {
			config[k] = v
		}
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, data)
	return func() { write(t, path, before) }
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
