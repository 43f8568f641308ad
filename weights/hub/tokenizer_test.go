package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of a repository that only lends its tokenizer nothing else is downloaded; it does not count as a
// model, and a model that is here lends its tokenizer without a request.
func TestTokenizersOfRepositories(t *testing.T) {
	h := newHarness(t)
	r := h.resolver()
	if _, ok, err := r.FindTokenizer(t.Context(), modelID, h.model.Commit); ok || err != nil {
		t.Errorf("before the download: %v, %v", ok, err)
	}
	found, err := r.ResolveTokenizer(t.Context(), modelID, h.model.Commit)
	if err != nil || found.Commit != h.model.Commit || found.Source != SourceHub {
		t.Fatalf("%+v, %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(found.Dir, "tokenizer.json")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(found.Dir, "model.safetensors")); !os.IsNotExist(err) {
		t.Errorf("the weights are there: %v", err)
	}
	for _, q := range h.hub.Requests() {
		if q.Storage || strings.Contains(q.Path, "modules.json") {
			t.Errorf("asked for %s", q.Path)
		}
	}
	offline := h.resolver(func(o *Options) { o.Offline = true })
	again, ok, err := offline.FindTokenizer(t.Context(), modelID, h.model.Commit)
	if err != nil || !ok || again.Dir != found.Dir {
		t.Errorf("%+v, %v, %v", again, ok, err)
	}
	if _, err := offline.Resolve(t.Context(), modelID, h.model.Commit); err == nil ||
		!strings.Contains(err.Error(), "only a part is there") {
		t.Errorf("a tokenizer counts as a model: %v", err)
	}
	whole, err := r.Resolve(t.Context(), modelID, h.model.Commit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(whole.Dir, "model.safetensors")); err != nil {
		t.Error(err)
	}
	h.hub.Requests()
	_, err = r.ResolveTokenizer(t.Context(), modelID, h.model.Commit)
	if err != nil || len(h.hub.Requests()) > 0 {
		t.Errorf("the tokenizer of a model that is here: %v", err)
	}
}

func TestRepositoriesWithoutATokenizer(t *testing.T) {
	h := newHarness(t)
	files := modelFiles()
	delete(files, "tokenizer.json")
	m := h.hub.Add(modelID, files)
	_, err := h.resolver().ResolveTokenizer(t.Context(), modelID, m.Commit)
	if ClassOf(err) != ClassConfig || !strings.Contains(err.Error(), "has no tokenizer") {
		t.Errorf("%v", err)
	}
}

// Of a model in the cluster's bucket, too, only the tokenizer is downloaded.
func TestTokenizersFromTheBucket(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.machine()
	r := c.resolver(c.shared, noHub)
	found, err := r.ResolveTokenizer(t.Context(), modelID, c.model.Commit)
	if err != nil || found.Source != SourceBucket {
		t.Fatalf("%+v, %v", found, err)
	}
	defer found.Release()
	if _, err := os.Stat(filepath.Join(found.Dir, "tokenizer.json")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(found.Dir, "model.safetensors")); !os.IsNotExist(err) {
		t.Errorf("the weights are there: %v", err)
	}
}
