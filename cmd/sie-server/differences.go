package main

import (
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
)

// knownDifferences are what the reference does otherwise with models of its catalog.
// docs/compatibility.md has the tests.
var knownDifferences = []struct {
	ids  []string
	says string
}{
	{[]string{"answerdotai/ModernBERT-base"},
		"pads at the left and pools the first row, which in a batch of several lengths is padding's"},
	{[]string{"lightonai/GTE-ModernColBERT-v1", "lightonai/Reason-ModernColBERT", "lightonai/mLateOn",
		"mixedbread-ai/mxbai-edge-colbert-v0-32m", "topk-io/Iso-ModernColBERT"},
		"0.3.1 takes the first columns of the last states in place of the Dense modules, without final norm and windows"},
	{[]string{"answerdotai/answerai-colbert-small-v1", "colbert-ir/colbertv2.0",
		"mixedbread-ai/mxbai-colbert-large-v1"},
		"0.3.1 gives the markers random embeddings; filled-up queries are attended to by chance"},
	{[]string{"jinaai/jina-colbert-v2"},
		"0.3.1 takes the first columns of the last states in place of the trained projection"},
	{[]string{"NovaSearch/stella_en_400M_v5"}, "applies the Dense module on a CPU only"},
	{[]string{"google/embeddinggemma-300m"}, "0.3.1 cannot load it, and applies neither Dense module"},
	{[]string{"opensearch-project/opensearch-neural-sparse-encoding-doc-v3-distill"},
		"takes the logarithm once; the model's files say twice"},
	{[]string{"intfloat/multilingual-e5-large-instruct"},
		`has a backslash and an n in the query's template; here it is a new line`},
	{[]string{"Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-8B", "NovaSearch/stella_en_1.5B_v5",
		"tencent/R3-embedding-0.6b"},
		"is causal as its option says, not as the model's files; 0.3.1 drops the default instruction"},
	{[]string{"Qwen/Qwen3-Embedding-4B"},
		"has a space behind Query: and another default instruction than the model's files"},
	{[]string{"Alibaba-NLP/gte-Qwen2-1.5B-instruct"}, "0.3.1 drops the default instruction"},
	{[]string{"Alibaba-NLP/gte-Qwen2-7B-instruct"},
		"0.3.1 runs it causal; here tokens see all others, as its files say"},
}

const (
	// runsCode is said of a model with code of its own.
	runsCode = "runs the Python code of the model's repository; here it never runs"
	// sameAsFarAsKnown is said of a model without a difference.
	sameAsFarAsKnown = "computes the same, as far as is known (docs/compatibility.md)"
)

// differences returns what the reference would do otherwise with the model.
func differences(m *catalog.Resolved, r *arch.Report) (out []string) {
	for _, d := range knownDifferences {
		if slices.Contains(d.ids, m.BaseID) {
			out = append(out, d.says)
		}
	}
	if r.OwnCode {
		out = append(out, runsCode)
	}
	if out == nil {
		return []string{sameAsFarAsKnown}
	}
	return out
}
