package server

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/service"
)

// Entries of the tests of bounds. The spans of acme/few are read in windows of four words.
const extractors = `acme/spans gliner:GLiNERAdapter gliner-deberta-span
acme/few gliner:GLiNERAdapter few
acme/tokens gliner:GLiNERAdapter gliner-modernbert-token
acme/relations gliner:GLiNERAdapter relex-span
acme/tower gliner_bi:GLiNERBiAdapter gliner-bi-modernbert-span
acme/classes gliclass:GLiClassAdapter gliclass-modern
acme/zero nli_classification:NLIClassificationAdapter text-deberta-zero`

// withExtractors adds the tiny extractors to the rig's model.
func withExtractors(t *testing.T) func(*Options, *service.Options) {
	t.Helper()
	few := filepath.Join(t.TempDir(), "few")
	if err := os.CopyFS(few, os.DirFS(filepath.Join(golden.Root(t), "gliner-deberta-span"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(few, "gliner_config.json")
	var config map[string]any
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err == nil {
		config["max_len"] = 4
		data, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *Options, o *service.Options) {
		for line := range strings.Lines(extractors) {
			f := strings.Fields(line)
			dir := filepath.Join(golden.Root(t), f[2])
			if f[2] == "few" {
				dir = few
			}
			m, warn, err := catalog.ParseModel("x.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {extract: {}}
max_sequence_length: 512
profiles: {default: {adapter_path: "sie_server.adapters.%s", max_batch_tokens: 8192}}
`, f[0], dir, f[1]))
			if err != nil || len(warn) > 0 {
				t.Fatal(err, warn)
			}
			if o.Catalog, err = o.Catalog.With(m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// find posts a request for one text more than the given ones, the first, which is as any other.
func (r *rig) find(model, params string, texts ...string) (answer, extracted) {
	r.t.Helper()
	items, err := json.Marshal(append([]string{"Ann met Bob in Berlin"}, texts...))
	if err != nil {
		r.t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(items, &list); err != nil {
		r.t.Fatal(err)
	}
	var body strings.Builder
	for i, text := range list {
		quoted, _ := json.Marshal(text)
		fmt.Fprintf(&body, "%s{\"text\":%s}", []string{"", ","}[min(i, 1)], quoted)
	}
	a := r.do("POST", "/v1/extract/"+model, `{"items":[`+body.String()+`],"params":`+params+`}`,
		"Accept", "application/json", "X-SIE-SDK-Version", "0.10.1")
	var got extracted
	if a.status == 200 {
		a.into(r.t, &got)
	}
	return a, got
}

// quotedLabels returns n labels as the params of a request.
func quotedLabels(n int, suffix string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("l", i, suffix)
	}
	data, _ := json.Marshal(map[string]any{"labels": list})
	return string(data)
}

// A bad request is a 400 that names the field, and says what is wrong with which bound; one step
// before the bound it is answered.
func TestExtractRefuses(t *testing.T) {
	r := start(t, withExtractors(t))
	chars := func(n int) string { return `{"labels":["` + strings.Repeat("é", n) + `"]}` }
	options := func(s string) string { return `{"labels":["a","b"],"options":{` + s + `}}` }
	schema := func(s string) string { return `{"labels":["a","b"],"output_schema":` + s + `}` }
	deep := func(n int) string { return schema(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)) }
	for _, c := range []struct{ models, params, field, want string }{
		{"spans few tokens relations tower zero classes", `{}`, "params.labels", "label"},
		{"spans few tokens relations tower zero", `{"labels":[]}`, "params.labels", "label"},
		{"spans tokens relations tower zero", `{"labels":["a"," "]}`, "params.labels", "[1] is blank"},
		{"classes", `{"labels":["a"," "]}`, "params.labels",
			"label 1 of params.labels is blank; name the class"},
		{"spans tokens relations tower zero", `{"labels":["a","b","a"]}`, "params.labels",
			`[2] "a" is params.labels[0] again; name each label once`},
		{"classes", `{"labels":["a","b"," a"]}`, "params.labels", "'a' twice; name each label once"},
		{"spans tokens relations tower zero classes", chars(129), "params.labels", "129 characters"},
		{"spans tokens relations tower zero classes", chars(129), "params.labels", "128"},
		{"spans tokens relations tower zero classes", chars(129), "params.labels", ": shorten it"},
		{"spans tokens relations classes", `{"labels":["a <<SEP>> b"]}`, "params.labels", "<<SEP>>"},
		{"spans tokens relations", `{"labels":["<<ENT>>"]}`, "params.labels", "<<ENT>>"},
		{"classes", `{"labels":["<<LABEL>>","b"]}`, "params.labels", "<<LABEL>>"},
		{"relations", `{"labels":["a<<REL>>"]}`, "params.labels", "<<REL>>"},
		{"spans tokens relations tower zero classes", `{"labels":["a",5]}`, "params.labels[1]", "`str`"},
		{"spans zero classes", `{"labels":"a"}`, "params.labels", "`array"},
		{"spans tokens relations tower zero classes", quotedLabels(1001, ""), "params.labels", "1000"},
		{"spans tokens relations", quotedLabels(1000, ""), "params.labels", "1024 (max_prompt_tokens)"},
		{"spans tokens relations tower zero classes", options(`"threshold":1.001`), "options.threshold", "1"},
		{"spans tokens relations tower zero classes", options(`"threshold":-0.001`),
			"options.threshold", "0"},
		{"spans tokens relations tower zero classes", options(`"threshold":"0.5"`),
			"options.threshold", "number"},
		{"spans tokens relations tower zero classes", options(`"treshold":0.5`), "options.treshold",
			"threshold"},
		{"spans tokens tower", options(`"relation_labels":["r"]`), "options.relation_labels", "relations"},
		{"zero classes", options(`"relation_labels":["r"]`), "options.relation_labels",
			"has no use for it; remove it"},
		{"relations", options(`"relation_labels":["r",""]`), "options.relation_labels", "[1]"},
		{"relations", options(`"relation_labels":[7]`), "options.relation_labels", "[0]"},
		{"relations", options(`"threshold":0.0999`), "options.threshold", "0.1"},
		{"relations", options(`"relation_labels":["r"],"relation_threshold":1.01`),
			"options.relation_threshold", "1"},
		{"classes", `{"options":{"label_groups":{"g":[]}}}`, "options.label_groups", "g"},
		{"classes", `{"options":{"label_groups":{"g":["a","b"]},"group_encoding":"both"}}`,
			"options.group_encoding", "joint"},
		{"classes", options(`"examples":[{"text":"x"}]`), "options.examples", "labels"},
		{"classes", options(`"classification_type":"both"`), "options.classification_type", "single-label"},
		{"spans tokens relations tower zero", options(`"label_groups":{"g":["a","b"]}`),
			"options.label_groups", "has no use for it; remove it"},
		{"spans tokens relations tower zero", options(`"examples":[{"text":"x","labels":["a"]}]`),
			"options.examples", "has no use for it; remove it"},
		{"spans tokens relations tower zero classes", schema(`{"type":"object"}`), "params.output_schema",
			"has no use for it; remove it"},
		{"spans tokens relations tower zero classes", schema(`{}`), "params.output_schema",
			"has no use for it; remove it"},
		{"spans tokens relations tower zero classes", schema(`{"type":"enitity"}`), "params.output_schema",
			"has no use"},
		{"spans zero classes", schema(`[]`), "params.output_schema", "`object | null`"},
		{"spans zero classes", schema(`"object"`), "params.output_schema", "`object | null`"},
		{"spans zero classes", deep(128), "params.output_schema", "has no use"},
		{"spans zero classes", deep(129), "params.output_schema", "at most 128 levels"},
	} {
		for _, name := range strings.Fields(c.models) {
			a, _ := r.find("acme/"+name, c.params)
			e := errorBody{}
			if a.status == 400 {
				e = a.failure(t)
			}
			if a.status != 400 || e.Error.Param != c.field || !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("%s, %.80s: %d %q: %.300s; want a 400 for %s with %q", name, c.params, a.status,
					e.Error.Param, a.body, c.field, c.want)
			}
		}
	}
	for _, c := range []struct{ models, params string }{
		{"spans relations tower zero classes", chars(128)},
		{"tower", quotedLabels(1000, strings.Repeat("é", 100))},
		{"zero", quotedLabels(1000, "")},
		{"spans tokens relations tower classes", options(`"threshold":1`)},
		{"spans tokens tower classes", options(`"threshold":0`)},
		{"relations", options(`"threshold":0.1,"relation_labels":["r"],"relation_threshold":0`)},
		{"tower", `{"labels":["a <<SEP>> b"]}`}, // its labels stand in no prompt
		{"spans tokens relations tower zero classes", schema("null")},
		{"classes", options(`"examples":[{"text":"x","labels":[]}]`)}, // none of the labels is the text's
	} {
		for _, name := range strings.Fields(c.models) {
			if a, _ := r.find("acme/"+name, c.params); a.status != 200 {
				t.Errorf("%s, %.80s: %d %.300s", name, c.params, a.status, a.body)
			}
		}
	}
	// The labels of a prompt may take 1,024 tokens, and their markers count.
	fits := sort.Search(1000, func(n int) bool {
		a, _ := r.find("acme/spans", quotedLabels(n+1, ""))
		return a.status != 200
	})
	if a, _ := r.find("acme/spans", quotedLabels(fits+1, "")); fits < 100 ||
		!strings.Contains(string(a.body), "max_prompt_tokens") {
		t.Errorf("%d labels fit: %.300s", fits, a.body)
	}
}

// A threshold that JSON cannot write is refused as any other out of its range.
func TestExtractRefusesNaN(t *testing.T) {
	r := start(t, withExtractors(t))
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, option := range []string{"threshold", "relation_threshold"} {
			body, err := msgp.AppendIntf(nil, map[string]any{
				"items": []any{map[string]any{"text": "Berlin"}},
				"params": map[string]any{"labels": []any{"a"}, "options": map[string]any{option: v,
					"relation_labels": []any{"r"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			a := r.do("POST", "/v1/extract/acme/relations", string(body), "Accept", "application/json",
				"Content-Type", "application/msgpack")
			if e := a.failure(t); a.status != 400 || e.Error.Param != "options."+option {
				t.Errorf("%s %v: %d %s", option, v, a.status, a.body)
			}
		}
	}
	a := r.do("POST", "/v1/extract/acme/spans",
		`{"items":[{"text":"x"}],"params":{"labels":["a"],"options":{"threshold":NaN}}}`)
	if a.status != 400 {
		t.Errorf("NaN in JSON: %d %s", a.status, a.body)
	}
}

// A text beyond a bound has an error of its own, at the bound none; and its neighbour is answered
// as it is alone.
func TestExtractBoundsOfItems(t *testing.T) {
	r := start(t, withExtractors(t))
	const params = `{"labels":["city","person"],"options":{"threshold":0.3}}`
	for _, c := range []struct{ model, text, code, want string }{
		{"few", strings.Repeat("a ", 258), "", ""}, // 128 windows of four words, two of them shared
		{"few", strings.Repeat("a ", 259), "INPUT_TOO_LONG", "max_windows"},
		{"spans", " \t\u3000", "INVALID_INPUT", "blank"},
		{"spans", "", "INVALID_INPUT", "blank"},
		{"tokens", "\n", "INVALID_INPUT", "blank"},
		{"relations", " ", "INVALID_INPUT", "blank"},
		{"tower", " ", "INVALID_INPUT", "blank"},
		{"spans", strings.Repeat("a", 5000), "", ""},
	} {
		_, alone := r.find("acme/"+c.model, params)
		a, got := r.find("acme/"+c.model, params, c.text, "Bob")
		if a.status != 200 || len(got.Items) != 3 {
			t.Errorf("%s, %.20q: %d %.300s", c.model, c.text, a.status, a.body)
			continue
		}
		e := got.Items[1].Error
		switch {
		case (e != nil) != (c.code != ""):
			t.Errorf("%s, %.20q: %+v; want %q", c.model, c.text, e, c.code)
		case e != nil && (e.Code != c.code || !strings.Contains(e.Message, c.want) ||
			!strings.Contains(e.Message, "items[1]")):
			t.Errorf("%s, %.20q: %+v; want %s with %q", c.model, c.text, e, c.code, c.want)
		}
		if got.Items[0].Error != nil || got.Items[2].Error != nil ||
			fmt.Sprint(got.Items[0].Entities) != fmt.Sprint(alone.Items[0].Entities) {
			t.Errorf("%s, beside %.20q: %+v; alone %+v", c.model, c.text, got.Items[0], alone.Items[0])
		}
	}
}

// No model that is served takes entities, so those of an item's metadata change nothing, wherever
// they say that they lie.
func TestExtractReadsNoEntitiesOfItems(t *testing.T) {
	r := start(t, withExtractors(t))
	const entities = `,"metadata":{"entities":[{"text":"x","label":"city","start":-7,"end":1e9},` +
		`{"text":"y","start":13,"end":12},{"start":"a"},7]}`
	for _, name := range []string{"spans", "tokens", "relations", "tower", "classes", "zero"} {
		var bodies []string
		for _, metadata := range []string{"", entities} {
			a := r.do("POST", "/v1/extract/acme/"+name,
				`{"items":[{"text":"Ann met Bob \ud83d\ude42 in Berlin"`+metadata+`}],`+
					`"params":{"labels":["city","person"]}}`, "Accept", "application/json")
			var got extracted
			a.into(t, &got)
			bodies = append(bodies, fmt.Sprint(got.Items))
		}
		if bodies[0] != bodies[1] {
			t.Errorf("%s: %s with entities, %s without", name, bodies[1], bodies[0])
		}
	}
}

// A word has at most 256 characters: of a longer one the rest is a word of its own, as the places
// of what is found show.
func TestExtractLongWords(t *testing.T) {
	r := start(t, withExtractors(t))
	const params = `{"labels":["a"],"options":{"threshold":0,"flat_ner":false,"multi_label":true}}`
	for n, words := range map[int]int{256: 1, 257: 2, 512: 2, 513: 3} {
		_, got := r.find("acme/spans", params, strings.Repeat("é", n))
		ends := map[float64]bool{}
		for _, e := range got.Items[1].Entities {
			ends[e["end"].(float64)] = true
		}
		if len(ends) != words || !ends[float64(n)] || words > 1 && !ends[256] {
			t.Errorf("%d characters: entities end at %v; want %d places", n, ends, words)
		}
	}
}
