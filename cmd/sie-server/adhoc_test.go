package main

import (
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// A directory without a model file is served as its own files say it was made for.
func TestAdHocTasks(t *testing.T) {
	for dir, want := range map[string]struct {
		adapter string
		outputs []string
	}{
		"st-mean":        {"", nil},
		"splade-bert":    {"splade_flash", []string{"sparse"}},
		"colbert-dense":  {"colbert", []string{"multivector", "score"}},
		"bge-m3":         {"bge_m3_flash", []string{"dense", "sparse", "multivector", "score"}},
		"rerank-sigmoid": {"cross_encoder", []string{"score"}},
		"classify-bert":  {"sequence_classification", []string{"json"}},
		"tag-distilbert": {"token_classification", []string{"json"}},
		"bert-erf-h128":  {"", nil},

		"saved-embedder/6.2.0": {"", nil},
		"saved-sparse/6.2.0":   {"splade_flash", []string{"sparse"}},
		"saved-router/6.2.0":   {"splade_flash", []string{"sparse"}},
		"saved-reranker/6.2.0": {"cross_encoder", []string{"score"}},
		"saved-labels/6.2.0":   {"nli_classification", []string{"json"}},
	} {
		adapter, tasks, err := adHocTasks(golden.Open(t, dir).Dir)
		if want.adapter != "" {
			want.adapter = "sie_server.adapters." + want.adapter + ":Adapter"
		}
		if err != nil || adapter != want.adapter || !slices.Equal(tasks.Outputs(), want.outputs) {
			t.Errorf("%s: adapter %q, outputs %v, %v; want %q, %v", dir, adapter, tasks.Outputs(), err, want.adapter, want.outputs)
		}
	}
	if _, _, err := adHocTasks(t.TempDir()); err == nil {
		t.Error("an empty directory is something")
	}
}
