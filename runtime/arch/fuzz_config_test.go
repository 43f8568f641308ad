package arch

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// noTensors is a checkpoint without tensors.
type noTensors struct{}

func (noTensors) Names() []string                      { return nil }
func (noTensors) Tensor(string) (weights.Tensor, bool) { return weights.Tensor{}, false }

// Whatever config.json holds, each architecture reads it and refuses a file by its name:
// config.json for what it asks for, or the checkpoint, which has no tensors here.
func FuzzEncoderConfigurations(f *testing.F) {
	for _, name := range []string{"bert-erf-h128", "modernbert-window", "modernbert-yarn", "qwen2-both-ways",
		"qwen3-gqa-d64", "gemma-window", "gemma-yarn", "gte-en", "gte-saved", "nomic-v15", "nomic-saved",
		"jina-h2-d32", "jina-code-h3-d11", "jxlmr-rotary-h2-d32", "jxlmr-absolute-h1-d64", "tasks-jxlmr",
		"mpnet-h2-d32", "eurobert-gqa", "albert-groups", "t5-umt5"} {
		data, err := os.ReadFile(filepath.Join(golden.Open(f, name).Dir, configFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(`{"layer_types": [1], "rope_parameters": {"full_attention": []}, "rope_scaling": {"type": {}}}`)
	f.Add(`{"num_experts": "many", "n_embd": 1e400, "quantization_config": {"a": [1]}, "auto_map": [null]}`)
	dev := open(f, engine.Options{Threads: 1})
	f.Fuzz(func(t *testing.T, config string) {
		dir := fstest.MapFS{configFile: {Data: []byte(config)}}
		for _, name := range slices.Sorted(maps.Keys(architectures)) {
			p := &packer{dev: dev, from: noTensors{}, file: weights.SingleFile, compute: engine.ComputeF32}
			_, err := architectures[name](dir, p)
			var refused *ModelError
			if !errors.As(err, &refused) || refused.Reason == "" || strings.Contains(err.Error(), "%!") ||
				refused.File != configFile && refused.File != weights.SingleFile {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
