package load

import (
	"encoding/json"
	"fmt"
	"math"
)

// Known knows every answer. Its methods are safe for concurrent use.
type Known interface {
	// Dense returns the vector of a text.
	Dense(model, text string) []float32
	// Score returns the score of a text for a query.
	Score(model, query, text string) float64
	// Extract returns what an item of an answer must hold, by key; other keys are not looked at.
	Extract(model, text string, labels []string) map[string]any
}

// Result is an answer, in whatever form it came.
type Result struct {
	IDs    []string    // of the items, in order; nil where the API gives none
	Dense  [][]float32 // of encode and embeddings
	Scores []Scored
	Items  []map[string]any // of extract
}

// Scored is one line of a ranking.
type Scored struct {
	ID    string
	Score float64
	Rank  int
}

// check returns why a is not the answer to r, or "".
func check(k Known, r *Request, a *Result) string {
	n := len(r.Texts)
	got := max(len(a.Dense), len(a.Scores), len(a.Items))
	if got != n {
		return fmt.Sprintf("%d items for %d", got, n)
	}
	for i, id := range a.IDs {
		if id != r.ItemID(i) {
			return fmt.Sprintf("items[%d] has id %q, not %q", i, id, r.ItemID(i))
		}
	}
	switch r.Op {
	case Score:
		return checkScores(k, r, a.Scores)
	case Extract:
		for i, text := range r.Texts {
			if why := covers(k.Extract(r.Model, text, r.Labels), a.Items[i]); why != "" {
				return fmt.Sprintf("items[%d]: %s", i, why)
			}
		}
		return ""
	}
	for i, text := range r.Texts {
		if why := sameVector(k.Dense(r.Model, text), a.Dense[i]); why != "" {
			return fmt.Sprintf("items[%d]: %s", i, why)
		}
	}
	return ""
}

func sameVector(want, got []float32) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d numbers for %d", len(got), len(want))
	}
	for d := range want {
		if math.Float32bits(got[d]) != math.Float32bits(want[d]) {
			return fmt.Sprintf("number %d is %v, not %v", d, got[d], want[d])
		}
	}
	return ""
}

func checkScores(k Known, r *Request, scores []Scored) string {
	seen := make(map[string]float64, len(scores))
	for i, s := range scores {
		if _, twice := seen[s.ID]; twice {
			return fmt.Sprintf("%q is ranked twice", s.ID)
		}
		seen[s.ID] = s.Score
		if s.Rank != i {
			return fmt.Sprintf("line %d has rank %d", i, s.Rank)
		}
		if i > 0 && s.Score > scores[i-1].Score {
			return fmt.Sprintf("line %d scores above line %d", i, i-1)
		}
	}
	for i, text := range r.Texts {
		got, ok := seen[r.ItemID(i)]
		if want := k.Score(r.Model, r.Query, text); !ok {
			return fmt.Sprintf("items[%d] is not ranked", i)
		} else if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
			return fmt.Sprintf("items[%d] scores %v, not %v", i, got, want)
		}
	}
	return ""
}

// covers returns how got differs from want in want's keys, after both went through JSON.
func covers(want, got map[string]any) string {
	for key, w := range want {
		a, errA := json.Marshal(w)
		b, errB := json.Marshal(got[key])
		if errA != nil || errB != nil || string(a) != string(b) {
			return fmt.Sprintf("%s is %.200s, not %.200s", key, b, a)
		}
	}
	return ""
}
