package model

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
)

// If any file of a model or an adapter is a named pipe, the load fails at once. The error names the
// file but not its folder, and Close does not hang.
func TestPipesFailTheLoad(t *testing.T) {
	dir := withTokenizer(t, "splade-bert", "splade-bert", nil)
	idf := filepath.Join(dir, "idf.json")
	must(t, os.WriteFile(idf, []byte(`{"b": 1}`), 0o600))
	for _, name := range []string{
		"config.json", "modules.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
		"special_tokens_map.json", "sentence_bert_config.json", "config_sentence_transformers.json",
		"1_SpladePooling/config.json", "idf.json",
	} {
		path := filepath.Join(dir, name)
		kept := path + ".kept"
		there := os.Rename(path, kept) == nil
		var failure error
		r := start(t, nil, nil,
			entry(t, "a/sparse", dir, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
		testrig.WithoutPipe(t, func() {
			failure = r.Preload(t.Context(), "a/sparse")
			r.Close()
		}, path)
		if failure == nil || !strings.Contains(failure.Error(), "not a regular file") ||
			!strings.Contains(failure.Error(), filepath.Base(name)) {
			t.Errorf("%s: %v", name, failure)
		}
		must(t, os.Remove(path))
		if there {
			must(t, os.Rename(kept, path))
		}
	}

	from := filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters", "rank4")
	adapter := t.TempDir()
	must(t, os.CopyFS(adapter, os.DirFS(from)))
	m := loadtime(t, "lo", withTokenizer(t, "lora-bert", "st-mean", nil), "bert_flash",
		"tasks: {encode: {dense: {dim: 64}}}", "{lora_paths: {four: "+adapter+"}}")
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		path := filepath.Join(adapter, name)
		must(t, os.Rename(path, path+".kept"))
		r := start(t, nil, nil, m)
		testrig.WithoutPipe(t, func() {
			_, err := untilLoaded(t, func() (*Result, error) { return r.Encode(t.Context(), four()) })
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			r.Close()
		}, path)
		must(t, errors.Join(os.Remove(path), os.Rename(path+".kept", path)))
	}
}
