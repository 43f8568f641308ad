package task_test

import (
	"math"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// orderCase is a case of tools/golden/gliner_order.py.
type orderCase struct {
	Model, Text       string
	Labels, Relations []string
	Threshold         float64
	RelationThreshold float64 `json:"relation_threshold"`
	Entities          [][4]float64
	Related           []struct {
		Head, Tail string
		Relation   int
		Score      float64
	}
}

// Labels and the names of relations reach a model in the request's order, which is not that of the
// alphabet here: with sorted ones the package finds something else.
func TestSpansKeepTheOrderOfLabels(t *testing.T) {
	for _, c := range golden.JSON[[]orderCase](t, "gliner-order", "cases.json") {
		entry := spansEntry(t, c.Model)
		if strings.HasPrefix(c.Model, "gliner-bi-") {
			entry = biEntry(t, c.Model, golden.Open(t, c.Model).Dir)
		}
		r := start(t, nil, nil, entry)
		options := map[string]any{"threshold": c.Threshold, "flat_ner": false, "multi_label": true}
		if c.Relations != nil {
			options["relation_labels"] = anyOf(c.Relations)
			options["relation_threshold"] = c.RelationThreshold
		}
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: c.Model, Labels: c.Labels,
			Texts: []string{c.Text}, Options: options})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(c.Model, err, res)
		}
		got := res.Found[0]
		same := len(got.Entities) == len(c.Entities) && len(got.Relations) == len(c.Related)
		for i := 0; same && i < len(c.Entities); i++ {
			g, e := got.Entities[i], c.Entities[i]
			same = g.Start == int(e[0]) && g.End == int(e[1]) && g.Label == c.Labels[int(e[2])] &&
				math.Abs(g.Score-e[3]) < 1e-4
		}
		for i := 0; same && i < len(c.Related); i++ {
			g, e := got.Relations[i], c.Related[i]
			same = g.Head == e.Head && g.Tail == e.Tail && g.Relation == c.Relations[e.Relation] &&
				math.Abs(g.Score-e.Score) < 1e-4
		}
		if !same {
			t.Errorf("%s:\n got %v and %v\nwant %v and %v", c.Model, got.Entities, got.Relations, c.Entities,
				c.Related)
		}
	}
}
