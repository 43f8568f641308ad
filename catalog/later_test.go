package catalog

import (
	"errors"
	"strings"
	"testing"
)

// A model of the reference that is not served yet is refused by the name of its kind, under its own
// id, its folder's name and its variants' ids, and none of them is in the catalog.
func TestLaterModelsAreNamed(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for id, kind := range map[string]string{
		"fastino/gliner2-base-v1":                  "GLiNER2",
		"fastino/GLiNER2.5-Decide":                 "GLiNER2",
		"fastino__gliner2-large-v1":                "GLiNER2",
		"jackboyla/glirel-large-v0":                "GLiREL",
		"convaiinnovations/laya:graphs":            "Laya",
		"knowledgator/gliformer-base-v1":           "GLiFormer",
		"openai/privacy-filter":                    "OpenAI's privacy filter",
		"facebook/bart-large-mnli":                 "BART",
		"fastino/gliner2-privacy-filter-PII-multi": "GLiNER2",
	} {
		_, err := c.Resolve(id)
		var missing *NotFoundError
		want := "Model '" + id + "' not found: it is of the kind "
		if !errors.As(err, &missing) || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(err.Error(), kind) || missing.Suggestions != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for id := range later {
		if c.byID[id] != nil {
			t.Errorf("%s is served", id)
		}
	}
	if why := Later("urchade/gliner_small-v2.1"); why != "" {
		t.Error(why)
	}
}
