package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/weights/hub"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// published returns the files of a golden directory as a repository holds them. A directory without
// a tokenizer gets that of st-mean.
func published(t *testing.T, of string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"README.md": []byte("# tiny")}
	base, name, _ := strings.Cut(of, "/") // "case" or "case/folder"
	if strings.HasPrefix(of, "saved-") {  // a case for each release
		base, name = of, ""
	}
	read := func(dir string, keep func(string) bool) {
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && keep(path) {
				files[path], err = os.ReadFile(filepath.Join(dir, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read(filepath.Join(golden.Open(t, base).Dir, name), func(path string) bool {
		return path != "golden.safetensors" && path != "MANIFEST.json" && path != "texts.json" &&
			!strings.HasPrefix(path, "adapters")
	})
	if files["tokenizer.json"] == nil && files["config.json"] != nil {
		read(golden.Open(t, "st-mean").Dir,
			func(path string) bool { return strings.HasPrefix(path, "tokenizer") })
	}
	return files
}

// hubWorker serves the ids of a hub as `sie-server -m` does.
func hubWorker(t *testing.T, server *hubtest.Server, refs ...string) (*servicetest.Worker, *catalog.Catalog) {
	t.Helper()
	t.Setenv("HF_ENDPOINT", server.URL)
	src := &sourceFlags{Models: refs, LocalCache: t.TempDir(), HFFallback: true}
	cat, err := src.catalog()
	if err != nil {
		t.Fatal(err)
	}
	w := openWorker(t, src, cat)
	t.Cleanup(w.Close)
	return servicetest.Of(w), cat
}

// openWorker opens the service of a catalog on two threads in fp32. The caller closes it.
func openWorker(t *testing.T, src *sourceFlags, cat *catalog.Catalog) *service.Service {
	t.Helper()
	return openReporting(t, src, cat, nil)
}

// openReporting is openWorker with a function that gets the progress of downloads.
func openReporting(
	t *testing.T, src *sourceFlags, cat *catalog.Catalog, progress func(hub.Progress),
) *service.Service {
	t.Helper()
	w, err := newWorker(src, &computeFlags{Device: "cpu", Precision: "fp32", Threads: 2}, &batchFlags{
		MaxBatchRequests: 64,
		MaxBatchWait:     15,
		MaxQueued:        2048,
		MemoryPercent:    99,
		MaxLoRAs:         10,
		LoadWait:         time.Minute,
	}, cat, slog.New(slog.DiscardHandler), metrics.New(), admit.Options{}, progress)
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A hub repository without a model file is served as its own files say. No weights are asked for at
// the start; they are downloaded with the first request.
func TestHubIDsAreKept(t *testing.T) {
	server := hubtest.New(t)
	want := map[string][]string{
		"st-mean": {"dense"}, "splade-bert": {"sparse"}, "colbert-dense": {"multivector", "score"},
		"rerank-sigmoid": {"score"}, "classify-bert": {"json"}, "tag-bert": {"json"},
		"bge-m3": {"dense", "sparse", "multivector", "score"}, "bert-erf-h128": {"dense"},
		"saved-embedder/6.2.0": {"dense"}, "saved-sparse/6.2.0": {"sparse"}, "saved-router/6.2.0": {"sparse"},
		"saved-reranker/6.2.0": {"score"},
	}
	id := func(name string) string { return "acme/" + strings.ReplaceAll(name, "/", "-") }
	var refs []string
	for name := range want {
		server.Add(id(name), published(t, name))
		refs = append(refs, id(name))
	}
	w, cat := hubWorker(t, server, refs...)
	for _, r := range server.Requests() {
		if strings.Contains(r.Path, ".safetensors") && r.Method == http.MethodGet || r.Storage {
			t.Errorf("%s %s at the start", r.Method, r.Path)
		}
	}
	for name, outputs := range want {
		m, err := cat.Resolve(id(name))
		if err != nil || !slices.Equal(m.Outputs, outputs) {
			t.Errorf("%s gives %v, %v; want %v", name, m.Outputs, err, outputs)
		}
	}
	texts := []string{"the cat sat on the mat"}
	if res, err := w.Encode(t.Context(), &servicetest.Request{
		Model: "acme/splade-bert", Texts: texts, OutputTypes: []string{"sparse"},
	}); err != nil || len(res.Sparse) != 1 {
		t.Error(err)
	}
	if res, err := w.Encode(t.Context(),
		&servicetest.Request{Model: "acme/st-mean", Texts: texts}); err != nil || res.Dims != 32 {
		t.Error(err)
	}
	if res, err := w.Score(t.Context(), &servicetest.ScoreRequest{
		Model: id("saved-reranker/6.2.0"), Query: "a", Texts: texts,
	}); err != nil || len(res.Scores) != 1 {
		t.Error(err)
	}
	if res, err := w.Encode(t.Context(), &servicetest.Request{
		Model: id("saved-router/6.2.0"), Texts: texts, OutputTypes: []string{"sparse"},
	}); err != nil || len(res.Sparse) != 1 {
		t.Error(err)
	}
	if res, err := w.Score(t.Context(), &servicetest.ScoreRequest{
		Model: "acme/rerank-sigmoid", Query: "a", Texts: texts,
	}); err != nil || len(res.Scores) != 1 {
		t.Error(err)
	}
	if res, err := w.Score(t.Context(), &servicetest.ScoreRequest{
		Model: "acme/colbert-dense", Query: "a", Texts: texts,
	}); err != nil || len(res.Scores) != 1 {
		t.Error(err)
	}
	for _, id := range []string{"acme/classify-bert", "acme/tag-bert"} {
		if res, err := w.Extract(t.Context(),
			&servicetest.ExtractRequest{Model: id, Texts: texts}); err != nil || len(res.Found) != 1 {
			t.Error(id, err)
		}
	}
}

// A repository that could not be read when the server started is taken for an encoder of dense
// vectors; its load fails if it is none. The error for a LoRA adapter says what it is.
func TestHubIDsThatAreNotSeen(t *testing.T) {
	server := hubtest.New(t)
	server.Add("acme/rerank", published(t, "rerank-sigmoid"))
	server.Add("acme/lora", published(t, "lora-heads/rerank-sigmoid/all"))
	server.Fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
		hubtest.Refuse(w, http.StatusUnauthorized, "GatedRepo", "later")
		return true
	})
	w, cat := hubWorker(t, server, "acme/rerank")
	if m, err := cat.Resolve("acme/rerank"); err != nil || !slices.Equal(m.Outputs, []string{"dense"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	server.Fault(nil)
	_, err := w.Encode(t.Context(), &servicetest.Request{Model: "acme/rerank", Texts: []string{"a"}})
	if e := errs.As(err); e == nil || e.Status != 502 ||
		!strings.Contains(e.Message, "made for the task classify and was taken for one of embed") {
		t.Error(err)
	}
	src := &sourceFlags{Models: []string{"acme/lora"}, LocalCache: t.TempDir(), HFFallback: true}
	if _, err := src.catalog(); err == nil ||
		!strings.Contains(err.Error(), "the base of the adapter acme/lora") {
		t.Errorf("an adapter whose base is not on the hub: %v", err)
	}
}

// LoRA adapters are repositories without a config.json. A request names one by its id, a profile
// the other. The second server finds both in the cache and does not ask the hub.
func TestAdaptersOfTheHub(t *testing.T) {
	server := hubtest.New(t)
	server.Add("acme/rerank", published(t, "rerank-sigmoid"))
	server.Add("acme/lora", published(t, "lora-heads/rerank-sigmoid/attention"))
	server.Add("acme/tuned", published(t, "lora-heads/rerank-sigmoid/all"))
	t.Setenv("HF_ENDPOINT", server.URL)
	dir, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(`sie_id: acme/rerank
hf_id: acme/rerank
tasks: {score: {}}
max_sequence_length: 60
profiles:
  default: {adapter_path: "sie_server.adapters.cross_encoder:X", max_batch_tokens: 4096}
  tuned: {extends: default, adapter_options: {runtime: {lora_id: acme/tuned}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var first [3]float64
	for round := range 2 {
		src := &sourceFlags{ModelsDir: dir, LocalCache: cache, HFFallback: round == 0}
		cat, err := src.catalog()
		if err != nil {
			t.Fatal(err)
		}
		w := openWorker(t, src, cat)
		var scores [3]float64
		for i, c := range []struct {
			model   string
			options map[string]any
		}{{"acme/rerank", nil}, {"acme/rerank", map[string]any{"lora_id": "acme/lora"}},
			{"acme/rerank:tuned", nil}} {
			for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				res, err := (servicetest.Of(w)).Score(t.Context(), &servicetest.ScoreRequest{
					Model: c.model, Query: "the cat", Texts: []string{"sat on the mat"}, Options: c.options,
				})
				if err == nil {
					scores[i] = res.Scores[0]
					break
				}
				if e := errs.As(err); e == nil || e.Code != errs.LoRALoading || time.Now().After(end) {
					t.Fatal(c.model, err)
				}
			}
		}
		w.Close()
		if scores[0] == scores[1] || scores[1] == scores[2] || scores[0] == scores[2] {
			t.Errorf("without, with one and with the other: %v", scores)
		}
		asked := server.Requests()
		if round == 0 {
			first = scores
		} else if scores != first || len(asked) > 0 {
			t.Errorf("from the cache %v, from the hub %v; the hub was asked %v", scores, first, asked)
		}
	}
}

// A model whose code this server does not know is served by no entrance, although its files could
// be loaded as the plain architecture that they name: not as a directory, as a hub id that was seen
// or not seen at the start, or by a model file.
func TestModelsWithTheirOwnCodeAreRefused(t *testing.T) {
	repo := published(t, "st-mean")
	config := strings.TrimSpace(string(repo["config.json"]))
	repo["config.json"] = []byte(`{"auto_map": {"AutoModel": "modeling_own.BertModel"},` + config[1:])
	const says = "runs code of its own (modeling_own.py: BertModel); this server does not know it"
	server := hubtest.New(t)
	server.Add("acme/own", repo)
	t.Setenv("HF_ENDPOINT", server.URL)

	dir := filepath.Join(t.TempDir(), "own")
	for name, data := range repo {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{dir, "own=" + dir, "acme/own"} {
		src := &sourceFlags{Models: []string{ref}, LocalCache: t.TempDir(), HFFallback: true}
		if _, err := src.catalog(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("-m %s: %v", ref, err)
		}
	}

	refused := func(entrance string, src *sourceFlags, model string) {
		cat, err := src.catalog()
		if err != nil {
			t.Fatal(entrance, err)
		}
		server.Fault(nil)
		w := openWorker(t, src, cat)
		defer w.Close()
		_, err = servicetest.Of(w).Encode(t.Context(),
			&servicetest.Request{Model: model, Texts: []string{"a"}})
		if e := errs.As(err); e == nil || e.Status != 502 || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %v", entrance, err)
		}
	}
	server.Fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
		hubtest.Refuse(w, http.StatusUnauthorized, "GatedRepo", "later")
		return true
	})
	refused("a hub id that was not seen",
		&sourceFlags{Models: []string{"acme/own"}, LocalCache: t.TempDir(), HFFallback: true}, "acme/own")
	models := t.TempDir()
	if err := os.WriteFile(filepath.Join(models, "m.yaml"), []byte(`sie_id: acme/entry
hf_id: acme/own
tasks: {encode: {dense: {dim: 32}}}
max_sequence_length: 60
profiles:
  default: {adapter_path: "sie_server.adapters.sentence_transformer:X", max_batch_tokens: 4096}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a model file",
		&sourceFlags{ModelsDir: models, LocalCache: t.TempDir(), HFFallback: true}, "acme/entry")
	refused("a model file with weights from a directory", &sourceFlags{
		ModelsDir: models, Models: []string{"acme/entry=" + dir}, LocalCache: t.TempDir(), HFFallback: true,
	}, "acme/entry")
}
