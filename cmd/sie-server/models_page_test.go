package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights/weightstest"
)

var update = flag.Bool("update", false, "write docs/models.md")

// realWeights has the models whose published weights were run and gave the reference's numbers, and
// the test that does so. A line that check-model --compare prints is what a new entry rests on.
var realWeights = map[string]string{
	"sentence-transformers/all-MiniLM-L6-v2": "TestCompareWithRecordedNumbers",
}

const modelsPage = "../../docs/models.md"

const pageHead = `# Models

This page is made from the model files in catalog/models, the tensors in testdata/published and the golden
models in testdata/golden. ` + "`go test -tags native ./cmd/sie-server -run TestModelsPage -update`" + ` writes
it, and fails without -update when it is stale.

A model of the catalog is served under its id. Others whose architecture is in the table are served by their
id on the hub or their directory: ` + "`sie-server check-model <id or directory>`" + ` says whether.

"Precision" is what the model's file asks for; without one, the device's own (fp32, bf16 or int8 on a CPU,
bf16, fp16 or fp8 on a GPU). "Tokens" is the longest text; "any" is read in windows of words. "GB" is what the
weights take in bf16 or fp16; in fp32 they take twice, in int8 about half of it.

"Commit" begins the commit of the repository that is downloaded: the one that release 0.10.1 of the reference
pins. Where it pins none, there is a dash, and the default branch counts; ` + "`hf_revision`" + ` in a model file of
your own pins another.

"Verified" says what was compared with the reference:

- **real weights**: the published weights were run here, and gave the recorded numbers;
- **tiny model**: a random model of the same architecture, all hidden states and vectors against transformers or
  a transcription of the model's code; and the published names and shapes are those that the loader wants;
- **names and shapes only**: the published names and shapes are those that the loader wants.

The names behind "read" were read from the model's files, those behind "derived" follow from its architecture
(testdata/published says from what). ` + "`sie-server check-model <id> --compare`" + ` downloads a model,
encodes the reference's probe texts and compares with the numbers that the reference recorded: it is how a
line comes to say "real weights". ` + "`check-model all --compare`" + ` does so for all models that have such
numbers.

`

// tinyModels returns the architectures that have a golden model.
func tinyModels(t *testing.T, dev *engine.Device) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	configs, err := filepath.Glob(filepath.Join(golden.Root(t), "*", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range configs {
		dir := filepath.Dir(config)
		r, err := arch.Check(dir, dev, arch.Options{Task: arch.Embed})
		if err != nil || len(r.Problems) > 0 {
			continue
		}
		out[r.Arch] = true
		// A decoder that its configuration makes bidirectional computes what others' code does.
		var causal struct {
			Is *bool `json:"is_causal"`
		}
		data, err := os.ReadFile(config)
		if err == nil && json.Unmarshal(data, &causal) == nil && causal.Is != nil && !*causal.Is {
			out[r.Arch+"-bidirectional"] = true
		}
	}
	return out
}

// modelsPageNow returns the page as it should be.
func modelsPageNow(t *testing.T) string {
	t.Helper()
	dev, err := engine.Open(engine.Options{Threads: 1})
	if err != nil {
		t.Skip(err)
	}
	defer dev.Close()
	models, err := catalog.LoadDir("../../catalog/models")
	if err != nil {
		t.Fatal(err)
	}
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	tiny := tinyModels(t, dev)
	var rows []string
	count := map[string]int{}
	for _, m := range models.List() {
		if m.ID != m.BaseID {
			continue
		}
		of := m
		if len(m.Members) > 0 { // the union's own model; the others have rows of their own
			of = m.Members[0]
		}
		p, dir := all[of.ID], t.TempDir()
		p.Write(t, dir)
		r, err := arch.Check(dir, dev, checkOptions(of, engine.ComputeF32))
		if err != nil {
			t.Fatalf("%s: %v", m.ID, err)
		}
		names, _, _ := strings.Cut(p.Source["names"], ":")
		names, _, _ = strings.Cut(names, ",")
		how := "names and shapes only"
		if tiny[r.Arch] {
			how = "tiny model"
		}
		if realWeights[m.ID] != "" {
			how = "real weights"
		}
		count[how]++
		tokens := fmt.Sprint(r.Tokens)
		if of.Family == catalog.FamilySpanExtractor {
			tokens = "any"
		}
		name := r.Arch
		if n := len(m.Members); n > 0 {
			name = fmt.Sprintf("union of %d: %s", n, r.Arch)
		}
		var dims []string
		for _, o := range m.Outputs {
			if d := m.Dims[o]; d > 0 {
				dims = append(dims, fmt.Sprint(d))
			}
		}
		commit := cmp.Or(m.Revision, "–")
		// the weights in bf16, half of those in fp32 but for some vectors
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %.2g | %s | %s | %s, names %s |", m.ID,
			strings.Join(m.Outputs, ", "), cmp.Or(strings.Join(dims, ", "), "–"), tokens, name,
			float64(r.Size.Packed)/2e9, cmp.Or(string(m.Precision), "the device's"),
			commit[:min(len(commit), 7)], how, names))
	}
	slices.Sort(rows)
	var page strings.Builder
	page.WriteString(pageHead)
	fmt.Fprintf(&page, "%d models:", len(rows))
	for i, how := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&page, "%s %d %s", []string{"", ","}[min(i, 1)], count[how], how)
	}
	page.WriteString(".\n\n| model | gives | dims | tokens | architecture | GB | precision | commit | verified |\n")
	page.WriteString("|" + strings.Repeat(" --- |", 9) + "\n" + strings.Join(rows, "\n") + "\n\n")
	fmt.Fprintf(&page, "Architectures with a tiny model: %s.\n",
		strings.Join(slices.Sorted(maps.Keys(tiny)), ", "))
	return page.String()
}

func TestModelsPage(t *testing.T) {
	want := modelsPageNow(t)
	if *update {
		if err := os.WriteFile(modelsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(modelsPage)
	if err != nil || string(have) != want {
		t.Errorf("docs/models.md is stale (%v): "+
			"go test -tags native ./cmd/sie-server -run TestModelsPage -update", err)
	}
}
