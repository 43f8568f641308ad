package task_test

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/task"
)

// A directory without a model file is served as its own files say it was made for.
func TestDetectedFamilies(t *testing.T) {
	for dir, want := range map[string]struct {
		adapter string
		outputs []string
	}{
		"st-mean":        {"sentence_transformer:SentenceTransformerDenseAdapter", []string{"dense"}},
		"splade-bert":    {"splade_flash:Adapter", []string{"sparse"}},
		"colbert-dense":  {"colbert:Adapter", []string{"multivector", "score"}},
		"bge-m3":         {"bge_m3_flash:Adapter", []string{"dense", "sparse", "multivector", "score"}},
		"rerank-sigmoid": {"cross_encoder:Adapter", []string{"score"}},
		"classify-bert":  {"sequence_classification:Adapter", []string{"json"}},
		"classify-qwen3": {"sequence_classification:Adapter", []string{"json"}},
		"classify-qwen2": {"cross_encoder:Adapter", []string{"score"}},
		"tag-qwen3":      {"token_classification:Adapter", []string{"json"}},
		"tag-distilbert": {"token_classification:Adapter", []string{"json"}},
		"bert-erf-h128":  {"sentence_transformer:SentenceTransformerDenseAdapter", []string{"dense"}},

		"saved-embedder/6.2.0": {"sentence_transformer:SentenceTransformerDenseAdapter", []string{"dense"}},
		"saved-sparse/6.2.0":   {"splade_flash:Adapter", []string{"sparse"}},
		"saved-router/6.2.0":   {"splade_flash:Adapter", []string{"sparse"}},
		"saved-reranker/6.2.0": {"cross_encoder:Adapter", []string{"score"}},
		"saved-labels/6.2.0":   {"nli_classification:Adapter", []string{"json"}},
	} {
		family, err := task.Detect(golden.Open(t, dir).Dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := catalog.AdHoc("m", catalog.AdHocInfo{WeightsPath: "/m", Family: family})
		if err != nil {
			t.Fatal(err)
		}
		want.adapter = "sie_server.adapters." + want.adapter
		if got := m.Profiles[0].Adapter.String(); got != want.adapter ||
			!slices.Equal(m.Tasks.Outputs(), want.outputs) {
			t.Errorf("%s: adapter %q, outputs %v; want %q, %v",
				dir, got, m.Tasks.Outputs(), want.adapter, want.outputs)
		}
		if c, err := new(catalog.Catalog).With(m); err != nil || c.List()[0].Family != family ||
			c.List()[0].Usable() != nil {
			t.Errorf("%s: the catalog's entry is %+v, %v", dir, c.List(), err)
		}
	}
	if _, err := task.Detect(t.TempDir()); err == nil {
		t.Error("an empty directory is something")
	}
}
