package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/weights/hub/hubtest"
	"github.com/sie-engine/sie/weights/weightstest"
)

const realMiniLM = "../../build/models/all-MiniLM-L6-v2"

// checks looks at models as check-model does, and returns what it prints.
func checks(t *testing.T, refs ...string) (string, error) {
	t.Helper()
	dev, err := engine.Open(engine.Options{Threads: 1})
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c := checkModelCmd{sourceFlags: sourceFlags{LocalCache: t.TempDir(), HFFallback: true}, Model: refs}
	var out bytes.Buffer
	err = c.check(t.Context(), &out, dev, engine.ComputeF32)
	return out.String(), err
}

func says(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
}

// check-model says what a directory holds, and fails with every tensor that is wrong.
func TestCheckModel(t *testing.T) {
	from := golden.Open(t, "st-mean-dense-tanh-normalize-prompts").Dir
	out, err := checks(t, from)
	if err != nil {
		t.Error(err)
	}
	says(t, out, "architecture  bert, 2 blocks", "task          embed",
		"2_Dense/model.safetensors, model.safetensors", "0 wrong or missing, 2 left over", "MiB in fp32",
		"reference     computes the same, as far as is known", `left over: "pooler.dense.bias"`)
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
	// three tensors of each of two blocks have another shape, and the third block's 16 are missing
	out, err = checks(t, dir)
	if err == nil || !strings.Contains(err.Error(), "22 tensors are wrong or missing") {
		t.Error(err)
	}
	says(t, out, "layer.1.output.dense.weight: has shape [32 70]",
		"layer.2.output.LayerNorm.bias: no such tensor")
}

// A model that is named is looked at in whatever bundle the process is, as in a worker of the
// chart, and an unknown one is refused there as elsewhere.
func TestCheckModelOutsideTheBundle(t *testing.T) {
	bundles, err := catalog.BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	for _, b := range bundles {
		for _, id := range []string{defaultModel, "BAAI/bge-m3", "Qwen/Qwen3-Embedding-4B"} {
			if _, err := all.InBundle(b).Resolve(id); err != nil {
				outside++
			}
			c := checkModelCmd{sourceFlags: sourceFlags{Bundle: b.Name}}
			if m, err := c.entry(id); err != nil || m.ID != id {
				t.Errorf("%s in bundle %s: %v", id, b.Name, err)
			}
			_, err := c.entry("nobody-knows")
			if err == nil || !strings.Contains(err.Error(), "--models nobody-knows: not in the catalog") {
				t.Errorf("in bundle %s: %v", b.Name, err)
			}
		}
	}
	if outside == 0 {
		t.Error("all of them are in every bundle")
	}
	dir := golden.Open(t, "st-mean").Dir
	c := checkModelCmd{sourceFlags: sourceFlags{Bundle: bundles[0].Name}}
	if m, err := c.entry(dir); err != nil || m.WeightsPath != dir {
		t.Errorf("a directory: %v", err)
	}
}

// Of a hub id check-model reads the headers; of a catalog id also what the entry says.
func TestCheckModelOnTheHub(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	files := published(t, "st-mean-dense-tanh-normalize-prompts")
	server.Add("sie-test/tiny", files)
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	dir := t.TempDir()
	all["rasyosef/splade-mini"].Write(t, dir)
	small := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			small[path], err = os.ReadFile(filepath.Join(dir, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	mini, err := cat.Resolve("rasyosef/splade-mini")
	if err != nil {
		t.Fatal(err)
	}
	server.Add("rasyosef/splade-mini", small).Commit = mini.Revision // no other is asked for
	out, err := checks(t, "sie-test/tiny", "rasyosef/splade-mini", "sie-test/none")
	if err == nil || !strings.Contains(err.Error(), "sie-test/none") {
		t.Errorf("a repository that does not exist: %v", err)
	}
	says(t, out, "sie-test/tiny\narchitecture  bert, 2 blocks",
		"2_Dense/model.safetensors, model.safetensors",
		"rasyosef/splade-mini\narchitecture  bert, 4 blocks, up to 512 tokens\ntask          splade",
		"0 wrong or missing", "sie-test/none")
	for _, q := range server.Requests() {
		if q.Storage && q.Range == "" {
			t.Errorf("asked for the whole of %s", q.Path)
		}
	}
}

func TestCheckModelSaysWhatTheReferenceDoes(t *testing.T) {
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	for id, part := range map[string]string{
		"answerdotai/ModernBERT-base": "pads at the left",
		"colbert-ir/colbertv2.0":      "gives the markers random embeddings",
		"Qwen/Qwen3-Embedding-4B":     "has a space behind Query:",
		"lightonai/mLateOn":           "0.3.1 takes the first columns",
		"intfloat/e5-small-v2":        sameAsFarAsKnown,

		"Snowflake/snowflake-arctic-embed-m-v2.0": runsCode,
	} {
		dir := t.TempDir()
		all[id].Write(t, dir)
		out, err := checks(t, id+"="+dir)
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		says(t, out, "reference     ", part, "0 wrong or missing")
	}
}

// check-model says of every model of the catalog, from the headers of a checkpoint without bytes:
// its architecture, task and longest text, the files with weights, that no tensor is missing or of
// another shape, the memory, and what the reference does otherwise.
func TestCheckModelOfTheWholeCatalog(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing runs at once here: without -short it takes seconds, under the race detector minutes")
	}
	dev, err := engine.Open(engine.Options{Threads: 1})
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	line := regexp.MustCompile(`(?m)^architecture  ([\w-]+), (\d+) blocks, up to (\d+) tokens
task          ([\w-]+).*
parts         (.+)
tensors       (\d+) read, 0 wrong or missing, (\d+) left over
memory        (\d+) MiB in fp32, and \d+ MiB more while it is packed
reference     .+$`)
	looked := 0
	for _, m := range cat.List() {
		p := all[m.ID]
		if m.ID != m.BaseID || len(m.Members) > 0 {
			continue
		}
		if p == nil {
			t.Errorf("%s is not in testdata/published", m.ID)
			continue
		}
		dir := t.TempDir()
		p.Write(t, dir)
		var out bytes.Buffer
		if err := checkModel(&out, m.ID, dir, m, dev, engine.ComputeF32); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		found := line.FindStringSubmatch(out.String())
		if found == nil {
			t.Errorf("%s: a line is missing in\n%s", m.ID, out.String())
			continue
		}
		looked++
		there := 0 // tensors of the file
		for _, w := range p.Weights {
			there += len(w.All())
		}
		number := func(i int) (n int) { n, _ = strconv.Atoi(found[i]); return n }
		read, left := number(6), number(7)
		whole := len(p.Weights) == 1 // others may have Dense modules that are not used
		if read+left > there || whole && read+left != there {
			t.Errorf("%s: %d tensors read and %d left over of %d", m.ID, read, left, there)
		}
		if got := strings.Count(out.String(), "left over: "); got != min(left, maxListed) {
			t.Errorf("%s: %d names of %d tensors left over", m.ID, got, left)
		}
		if number(2) < 1 || number(3) < 1 || number(8) < 1 || !strings.Contains(found[5], ".") {
			t.Errorf("%s:\n%s", m.ID, out.String())
		}
		if want := task.Tasks()[m.Family].String(); found[4] != want {
			t.Errorf("%s: task %s, expected %s", m.ID, found[4], want)
		}
	}
	if looked < 120 {
		t.Fatalf("%d models", looked)
	}
}

// Of each architecture: a tensor that is missing, one of another shape and one too many are told by
// their names, and the model cannot be served.
func TestCheckModelNamesWhatIsWrong(t *testing.T) {
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	for id, broken := range map[string]struct{ missing, shape string }{
		"answerdotai/ModernBERT-base": {
			"layers.3.attn.Wqkv.weight", "layers.20.mlp.Wo.weight"},
		"Qwen/Qwen3-Embedding-0.6B": {
			"layers.0.self_attn.q_norm.weight", "layers.27.mlp.up_proj.weight"},
		"Alibaba-NLP/gte-Qwen2-1.5B-instruct": {
			"layers.1.self_attn.k_proj.bias", "layers.2.self_attn.o_proj.weight"},
		"Alibaba-NLP/gte-multilingual-base": {
			"layer.5.attention.qkv_proj.bias", "layer.0.mlp.up_gate_proj.weight"},
		"Snowflake/snowflake-arctic-embed-m-v2.0": {
			"layer.1.attn_ln.weight", "layer.2.mlp.down_proj.weight"},
		"nomic-ai/nomic-embed-text-v1.5": {
			"layers.7.mlp.fc12.weight", "layers.0.attn.Wqkv.weight"},
		"google/embeddinggemma-300m": {
			"layers.4.pre_feedforward_layernorm.weight", "layers.23.self_attn.k_proj.weight"},
		"jinaai/jina-embeddings-v2-base-en": {
			"layer.1.mlp.gated_layers.weight", "layer.0.mlp.wo.weight"},
		"jinaai/jina-embeddings-v2-base-code": {
			"layer.2.attention.self.layer_norm_q.weight", "layer.3.mlp.down_layer.weight"},
		"jinaai/jina-reranker-v2-base-multilingual": {
			"layers.0.mixer.Wqkv.bias", "layers.11.mlp.fc2.weight"},
	} {
		p := all[id].With(func(name string, shape []int64) ([]int64, bool) {
			switch {
			case strings.HasSuffix(name, broken.missing):
				return nil, false
			case strings.HasSuffix(name, broken.shape):
				return []int64{shape[0] + 1, shape[1]}, true
			}
			return shape, true
		}, "one.too.many")
		dir := t.TempDir()
		p.Write(t, dir)
		out, err := checks(t, id+"="+dir)
		if err == nil || !strings.Contains(err.Error(), "cannot be served: 2 tensors are wrong or missing") {
			t.Errorf("%s: %v\n%s", id, err, out)
		}
		says(t, out, broken.missing+": no such tensor", broken.shape+": has shape [",
			`left over: "one.too.many"`)
	}
}

// check-model says of models that find entities and classes what it says of others: the encoder,
// the task, the files, the memory.
func TestCheckModelOfExtractors(t *testing.T) {
	all := weightstest.ReadPublished(t, filepath.Join(golden.Root(t), "..", "published"))
	for id, parts := range map[string][]string{
		"urchade/gliner_small-v2.1":         {"deberta-v2, 6 blocks", "spans", "0 left over"},
		"numind/NuNER_Zero":                 {"deberta-v2, 24 blocks", "spans", "0 left over"},
		"NeuML/gliner-bert-tiny":            {"bert, 2 blocks", "spans"},
		"knowledgator/gliclass-edge-v3.0":   {"modernbert, 10 blocks", "gliclass", `"model.logit_scale"`},
		"knowledgator/gliclass-small-v1.0":  {"deberta-v2, 6 blocks", "gliclass", `"model.logit_scale"`},
		"knowledgator/gliner-pii-edge-v1.0": {"modernbert, 10 blocks", "spans"},
	} {
		dir := t.TempDir()
		all[id].Write(t, dir)
		out, err := checks(t, id+"="+dir)
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		says(t, out, append(parts, "architecture  ", "task          ", "model.safetensors", " MiB in fp32",
			"0 wrong or missing")...)
	}
}

// A model of a kind that comes later is refused by name, before anything is asked of the hub.
func TestCheckModelNamesLaterKinds(t *testing.T) {
	for id, kind := range map[string]string{
		"fastino/gliner2-base-v1": "GLiNER2", "jackboyla/glirel-large-v0": "GLiREL",
		"convaiinnovations/laya:graphs": "Laya", "knowledgator/gliformer-base-v1": "GLiFormer",
		"openai/privacy-filter": "OpenAI's privacy filter",
	} {
		out, err := checks(t, id)
		if err == nil || !strings.Contains(out+err.Error(), "it is of the kind "+kind) {
			t.Errorf("%s: %v\n%s", id, err, out)
		}
	}
}

// compared runs models as check-model --compare does, and returns what it prints.
func compared(t *testing.T, refs ...string) (string, error) {
	t.Helper()
	c := checkModelCmd{sourceFlags: sourceFlags{LocalCache: t.TempDir()}, Model: refs,
		computeFlags: computeFlags{Device: "cpu", Precision: "fp32", Threads: 2}}
	var out bytes.Buffer
	err := c.compare(t.Context(), &out)
	return out.String(), err
}

// The real MiniLM has the numbers that the reference recorded of it.
func TestCompareWithRecordedNumbers(t *testing.T) {
	if _, err := os.Stat(realMiniLM); err != nil {
		t.Skip("no MiniLM: run `make minilm`")
	}
	out, err := compared(t, "sentence-transformers/all-MiniLM-L6-v2="+realMiniLM, "naver/splade-v3",
		"Snowflake/snowflake-arctic-embed-s")
	if err == nil || !strings.Contains(err.Error(), "1 of 3 models differ") {
		t.Error(err)
	}
	says(t, out, "sentence-transformers/all-MiniLM-L6-v2: equal, dense of the last token within ",
		"naver/splade-v3: cannot be run: ", "Snowflake/snowflake-arctic-embed-s: no number was recorded",
		"1 of 3 models have the recorded numbers, 1 differ or could not be run, 1 have none recorded")
}

// Another model under a recorded id differs, and its line has both numbers.
func TestCompareWithAnotherModel(t *testing.T) {
	if _, err := engine.Open(engine.Options{Threads: 1}); errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	dir := t.TempDir()
	for name, content := range published(t, "st-mean") {
		at := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := compared(t, "intfloat/e5-small-v2="+dir)
	if err == nil {
		t.Error("another model has the recorded numbers")
	}
	says(t, out, "intfloat/e5-small-v2: DIFFERENT, dense differs by ",
		"recorded [-0.074463 0.041748 0.036255]")
}

func TestRecordedBound(t *testing.T) {
	for _, c := range []struct {
		got, want []float64
		ok        bool
	}{
		{[]float64{0.1, -0.2}, []float64{0.1015, -0.2015}, true},
		{[]float64{0.1, -0.2}, []float64{0.1, -0.2025}, false},
		{[]float64{10.85}, []float64{10.836}, true},
		{[]float64{10.86}, []float64{10.836}, false},
		{[]float64{0.1}, []float64{0.1, 0.2}, false},
	} {
		if _, ok := farthest(c.got, c.want); ok != c.ok {
			t.Errorf("%v and %v: %v", c.got, c.want, ok)
		}
	}
}
