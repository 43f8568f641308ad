package compat

import (
	"cmp"
	"runtime"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
)

// TEIInfo returns the answer of TEI's GET /info about the default model, which is the model that
// POST / uses. It loads nothing.
func (a *API) TEIInfo() (*api.TEIInfo, error) {
	m, err := a.defaultModel()
	if err != nil {
		return nil, err
	}
	info := &api.TEIInfo{
		ModelID:               cmp.Or(m.HFID, m.ID),
		ServedModelName:       m.ID,
		ModelDType:            dtypeName(a.Precision),
		ModelType:             teiType(&m),
		MaxConcurrentRequests: a.MaxQueued,
		MaxBatchTokens:        m.MaxBatchTokens,
		MaxClientBatchSize:    a.Limits.MaxItems,
		AutoTruncate:          true,
		TokenizationWorkers:   runtime.GOMAXPROCS(0),
		Version:               build.Version,
	}
	if listed, err := a.Backend.Info(m.ID); err == nil && listed.MaxSequenceLength != nil {
		info.MaxInputLength = *listed.MaxSequenceLength
	}
	if info.MaxClientBatchSize == 0 { // no limit on items: as many of the smallest items as a body can hold
		info.MaxClientBatchSize = max(a.Limits.BodyLimit(), 1)
	}
	if m.Revision != "" {
		info.ModelSHA = &m.Revision
	}
	if commit := build.Commit; commit != "" && commit != "unknown" {
		info.SHA = &commit
	}
	return info, nil
}

// teiType returns the kind of model that m is to TEI's clients. The labels of a head are in its
// weights, which may not be downloaded yet.
func teiType(m *Model) api.TEIModelType {
	switch {
	case m.has("sparse") && !m.has("dense"):
		return api.TEIModelType{Embedding: &api.TEIEmbedding{Pooling: "splade"}}
	case m.has("dense") || m.has("multivector"):
		return api.TEIModelType{Embedding: &api.TEIEmbedding{Pooling: cmp.Or(m.Pooling, "mean")}}
	case m.has("score"):
		return api.TEIModelType{Reranker: &api.TEIClassifier{
			ID2Label: map[string]string{"0": "LABEL_0"}, Label2ID: map[string]int{"LABEL_0": 0},
		}}
	}
	return api.TEIModelType{
		Classifier: &api.TEIClassifier{ID2Label: map[string]string{}, Label2ID: map[string]int{}},
	}
}

// dtypeName returns TEI's name for a precision.
func dtypeName(precision string) string {
	if name, ok := map[string]string{
		"fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
	}[precision]; ok {
		return name
	}
	return precision
}
