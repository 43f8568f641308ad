// Package testmodels provides the tiny models of testdata/golden as catalog entries, for tests of
// the runtime.
//
// Entry points: AdHoc, Family, Entry, Loadtime and Adapted make entries. The other functions change
// copies of models, make texts and read vectors. Only tests use it.
package testmodels

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// The ids of catalog entries over tiny models of testdata/golden.
const (
	Mean    = "test/mean"    // mean pooling, not normalised, 32 wide
	CLS     = "test/cls"     // cls pooling, normalised, 32 wide
	Prompts = "test/prompts" // dense layer, normalised, prompts, 20 wide
)

// Dirs maps these ids to their directories in testdata/golden.
var Dirs = map[string]string{
	Mean: "st-mean", CLS: "st-cls-normalize", Prompts: "st-mean-dense-tanh-normalize-prompts",
}

// AdHoc returns a model without a model file, with its weights in dir.
func AdHoc(t *testing.T, id, dir string) *catalog.Model {
	t.Helper()
	m, err := catalog.AdHoc(id, catalog.AdHocInfo{WeightsPath: dir})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Family returns a model with its weights in dir. profiles, in YAML, adds to its default profile.
func Family(t *testing.T, id, dir, profiles string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {encode: {dense: {dim: 32}}}
max_sequence_length: 40
profiles:
  default: {adapter_path: "sie_server.adapters.sentence_transformer:X", max_batch_tokens: 4096}
%s`, id, dir, profiles))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Float32s decodes rows of little-endian float32.
func Float32s(rows [][]byte) [][]float32 {
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row)/4)
		for j := range out[i] {
			out[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:]))
		}
	}
	return out
}

// Norm returns the L2 norm of v.
func Norm(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// Words returns n different texts of 1 to 25 words from the test models' vocabulary.
func Words(n int) []string {
	vocab := strings.Fields(
		"the cat sat on a mat what is tallest mountain in world and how tall it really when one counts from sea floor zebra quiz")
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for j, x := 0, i; j <= i*7%25 || x > 0; j++ {
			b.WriteString(vocab[(x+j)%len(vocab)] + " ")
			x /= len(vocab)
		}
		out[i] = b.String()
	}
	return out
}

// CopyModel copies a golden directory so that a test may change it.
func CopyModel(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, name).Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Replace changes the first occurrence of old in a file of a copied model, which must have one.
func Replace(t *testing.T, dir, file, old, new string) {
	t.Helper()
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s has no %s", file, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Loadtime returns a model as Entry does, with load-time options in YAML's flow style.
func Loadtime(t *testing.T, id, dir, adapter, tasks, options string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default: {adapter_path: "sie_server.adapters.%s:X", max_batch_tokens: 4096, adapter_options: {loadtime: %s}}
`, id, dir, tasks, adapter, options))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// WithTokenizer copies a golden model to a new directory. It replaces the tokenizer by that of
// another model and edits config.json.
func WithTokenizer(t *testing.T, model, tokenizer string, config map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, model).Dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(golden.Open(t, tokenizer).Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	Edit(t, filepath.Join(dir, "config.json"), config)
	return dir
}

// Edit sets entries of a JSON file.
func Edit(t *testing.T, path string, changes map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	for k, v := range changes {
		all[k] = v
	}
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Entry returns a model with its weights in dir. rest is the YAML between the weights and profiles.
func Entry(t testing.TB, id, dir, adapter, rest string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default:
    adapter_path: "sie_server.adapters.%s:X"
    max_batch_tokens: 4096
`, id, dir, rest, adapter))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Adapted returns a model with its weights in dir and three LoRA adapters. They are PEFT's adapters
// for base in the golden case lora-heads. The profile tuned uses one of them.
func Adapted(t *testing.T, id, dir, base, adapter, rest string) *catalog.Model {
	t.Helper()
	at := filepath.Join(golden.Open(t, "lora-heads").Dir, base)
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default:
    adapter_path: "sie_server.adapters.%s:X"
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {lora_paths: {attention: %[5]s/attention, all: %[5]s/all, saved: %[5]s/saved}}
  tuned: {extends: default, adapter_options: {runtime: {lora_id: all}}}
`, id, dir, rest, adapter, at))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// UntilLoaded repeats ask while an adapter is loading, for at most two minutes.
func UntilLoaded[R any](t *testing.T, ask func() (R, error)) (res R, err error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if res, err = ask(); errs.As(err) == nil || errs.As(err).Code != errs.LoRALoading ||
			time.Now().After(end) {
			return res, err
		}
	}
}

// Relabelled copies a golden model and renames the labels of its head.
func Relabelled(t *testing.T, model string, names []string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, model).Dir)); err != nil {
		t.Fatal(err)
	}
	byID, byName := map[string]string{}, map[string]int{}
	for i, n := range names {
		byID[fmt.Sprint(i)], byName[n] = n, i
	}
	Edit(t, filepath.Join(dir, "config.json"), map[string]any{"id2label": byID, "label2id": byName})
	return dir
}

// Shrink cuts a unigram tokenizer, so that the ids of its vocabulary end before n.
func Shrink(t *testing.T, dir string, n int) {
	t.Helper()
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	model := all["model"].(map[string]any)
	model["vocab"] = model["vocab"].([]any)[:n-1]
	all["added_tokens"] = slices.DeleteFunc(all["added_tokens"].([]any),
		func(a any) bool { return a.(map[string]any)["id"].(float64) >= float64(n-1) })
	if data, err = json.Marshal(all); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
