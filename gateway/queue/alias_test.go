package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sie-engine/sie/gateway/alias"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/inference"
)

// A name that stands for others is served by one of them, the same for the same request id. The
// answer has the name, and says which model it was in the outcome.
func TestAliases(t *testing.T) {
	table, err := alias.Parse(`{"best":[{"model":"org/dense","weight":1},{"model":"org/other","weight":1}],
		"gone":[{"model":"org/none","weight":1}]}`)
	if err != nil {
		t.Fatal(err)
	}
	g := newRig(t, func(o *Options) { o.Aliases = table })
	g.sidecar("w1", nil)
	g.sidecarFor("org/other", "w2", nil)
	g.ready("w2")
	seen := map[string]string{}
	for i := range 40 {
		id := fmt.Sprint("request-", i%10)
		res, err := g.encodeWith(t.Context(), inference.Head{RequestID: id}, "best", "text")
		if err != nil || res.Model != "best" || !res.Alias || seen[id] != "" && seen[id] != res.ModelID {
			t.Fatalf("%s: %v, %+v, was %q", id, err, res, seen[id])
		}
		seen[id] = res.ModelID
	}
	count := map[string]int{}
	for _, m := range seen {
		count[m]++
	}
	if count["org/dense"] == 0 || count["org/other"] == 0 || len(count) != 2 {
		t.Errorf("targets: %v", count)
	}
	if res, err := g.encodeWith(t.Context(), inference.Head{}, "org/dense", "text"); err != nil || res.Alias {
		t.Errorf("a model's own name: %v, %+v", err, res)
	}
	if info, err := g.backend.Begin(inference.Head{}).Info("org/dense"); err != nil ||
		!slices.Equal(info.Aliases, []string{"best"}) {
		t.Errorf("%+v, %v", info, err)
	}
	s := g.backend.Begin(inference.Head{})
	if m, err := s.OpenAIModel("best"); err != nil || m.ID == "best" {
		t.Errorf("%+v, %v", m, err)
	}
	if info, err := s.Info("best"); err != nil || info.Name != "best" {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := s.Model("gone"); err == nil {
		t.Error("a target that is not there is found")
	}
	has := func(name string) bool {
		return slices.ContainsFunc(g.backend.Models(), func(m api.ModelInfo) bool { return m.Name == name })
	}
	if !has("best") || has("gone") || !has("org/dense") {
		t.Error("the list of models")
	}
}
