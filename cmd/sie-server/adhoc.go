package main

import (
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
)

// adHocTasks decides how to serve a directory without a model file: by what its own files say it
// was made for. An empty adapter means an encoder of dense vectors.
func adHocTasks(dir string) (adapter string, tasks catalog.Tasks, err error) {
	task, labels, err := arch.Detect(dir)
	if err != nil {
		return "", tasks, err
	}
	unknown := &catalog.Dim{}
	switch task {
	case arch.Splade:
		adapter, tasks = "splade_flash", catalog.Tasks{Sparse: unknown}
	case arch.ColBERT:
		adapter, tasks = "colbert", catalog.Tasks{Multivector: unknown, Score: true}
	case arch.BGEM3:
		adapter, tasks = "bge_m3_flash", catalog.Tasks{Dense: unknown, Sparse: unknown, Multivector: unknown, Score: true}
	case arch.Tag:
		adapter, tasks = "token_classification", catalog.Tasks{Extract: true}
	case arch.Classify:
		adapter, tasks = "sequence_classification", catalog.Tasks{Extract: true}
		switch {
		case len(labels) == 1:
			adapter, tasks = "cross_encoder", catalog.Tasks{Score: true}
		case slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(strings.ToLower(l), "entail") }):
			adapter = "nli_classification"
		}
	default:
		return "", tasks, nil
	}
	return "sie_server.adapters." + adapter + ":Adapter", tasks, nil
}
