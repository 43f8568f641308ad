package main

import (
	"cmp"
	"slices"

	"github.com/sie-engine/sie/internal/nulldev"
)

// known knows the answers of the null device.
type known struct{}

// Dense returns the vector of a text.
func (known) Dense(model, text string) []float32 {
	width := nulldev.DefaultDims
	if model == "thenlper/gte-base" {
		width = 768
	}
	return nulldev.Dense(model, nulldev.Document, text, width)
}

// Score returns the score of a text for a query.
func (known) Score(model, query, text string) float64 { return nulldev.Score(model, query, text) }

// Extract returns what an item of an extract answer holds: the labels by score, best first.
func (known) Extract(model, text string, labels []string) map[string]any {
	list := []any{}
	for _, l := range labels {
		list = append(list, map[string]any{"label": l, "score": nulldev.Label(model, text, l)})
	}
	slices.SortStableFunc(list, func(a, b any) int {
		return cmp.Compare(b.(map[string]any)["score"].(float64), a.(map[string]any)["score"].(float64))
	})
	return map[string]any{"classifications": list}
}
