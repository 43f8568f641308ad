package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// check-model says what a directory holds, and fails with every tensor that is wrong.
func TestCheckModel(t *testing.T) {
	dev, err := engine.Open(engine.Options{Threads: 1})
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	from := golden.Open(t, "st-mean-dense-tanh-normalize-prompts").Dir
	var out bytes.Buffer
	if err := checkModel(&out, from, dev, 0); err != nil {
		t.Error(err)
	}
	for _, says := range []string{"architecture  bert, 2 blocks", "task          embed",
		"2_Dense/model.safetensors, model.safetensors", "0 wrong or missing, 2 left over", "MiB in ",
		`left over: "pooler.dense.bias"`} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("%q is not in\n%s", says, out.String())
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "config.json")
	config, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{`"intermediate_size": 70`, `"intermediate_size": 71`},
		{`"num_hidden_layers": 2`, `"num_hidden_layers": 3`}} {
		if !bytes.Contains(config, []byte(change[0])) {
			t.Fatalf("%s is not in\n%s", change[0], config)
		}
		config = bytes.ReplaceAll(config, []byte(change[0]), []byte(change[1]))
	}
	if err := os.WriteFile(name, config, 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	err = checkModel(&out, dir, dev, 0)
	// three tensors of each of two blocks have another shape, and the third block's 16 are missing
	if err == nil || !strings.Contains(err.Error(), "22 tensors are wrong or missing") ||
		!strings.Contains(out.String(), "layer.1.output.dense.weight: has shape [32 70]") ||
		!strings.Contains(out.String(), "layer.2.output.LayerNorm.bias: no such tensor") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
