package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/pages"
)

// Every route is documented, and everything that is documented is a route.
func TestRoutesAreDocumented(t *testing.T) {
	var doc struct {
		Info  struct{ Title, Version string }
		Tags  []struct{ Name string }
		Paths map[string]map[string]struct {
			Tags       []string
			Parameters []struct {
				Ref string `json:"$ref"`
			}
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(pages.GatewayDocument(), &doc); err != nil {
		t.Fatal(err)
	}
	tags := map[string]bool{}
	for _, tag := range doc.Tags {
		tags[tag.Name] = true
	}
	if doc.Info.Title != "SIE gateway" || doc.Info.Version == "" || !tags["Inference"] || !tags["Cluster"] {
		t.Errorf("%+v %v", doc.Info, tags)
	}
	documented := map[string]bool{}
	for path, methods := range doc.Paths {
		base, _, _ := strings.Cut(path, "{")
		for method, op := range methods {
			documented[strings.ToUpper(method)+" "+base] = true
			if len(op.Tags) != 1 || !tags[op.Tags[0]] {
				t.Errorf("%s %s is of no part of the page: %v", method, path, op.Tags)
			}
		}
	}
	for key, op := range map[string]string{"/v1/encode/{model}": "post", "/v1/embeddings": "post",
		"/rerank": "post"} {
		x := doc.Paths[key][op]
		var refs []string
		for _, p := range x.Parameters {
			refs = append(refs, p.Ref)
		}
		for _, name := range []string{"Priority", "Hold", "Pool", "Profile"} {
			if !slices.Contains(refs, "#/components/parameters/"+name) {
				t.Errorf("%s lacks the header %s", key, name)
			}
		}
		if x.Responses["401"] == nil || x.Responses["403"] == nil || x.Responses["429"] == nil {
			t.Errorf("%s has no answers for tokens", key)
		}
	}
	s := &Server{opt: Options{ConfigURL: "http://config"}}
	for _, r := range s.routes(inference.New(inference.Options{})) {
		key := r.Method + " " + r.Path
		if !documented[key] && r.Path != "/static/" {
			t.Errorf("the document lacks %s", key)
		}
		delete(documented, key)
	}
	if len(documented) > 0 {
		t.Errorf("the document has routes that do not exist: %v", documented)
	}
}
