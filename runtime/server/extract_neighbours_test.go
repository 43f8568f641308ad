package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/service"
)

// besideChanged adds a model of the golden data under an id, with other values in one of its JSON
// files: the file's name, then keys and values. A key with dots is one of an object inside.
func besideChanged(
	t *testing.T, id, adapter, of, file string, changes map[string]any,
) func(*Options, *service.Options) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), of)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(golden.Root(t), of))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	var config map[string]any
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range changes {
		object := config
		for outer, inner, ok := strings.Cut(key, "."); ok; outer, inner, ok = strings.Cut(key, ".") {
			object, key = object[outer].(map[string]any), inner
		}
		object[key] = value
	}
	if data, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *Options, o *service.Options) {
		m, warn, err := catalog.ParseModel("x.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {extract: {}}
max_sequence_length: 512
profiles: {default: {adapter_path: "sie_server.adapters.%s", max_batch_tokens: 8192}}
`, id, dir, adapter))
		if err != nil || len(warn) > 0 {
			t.Fatal(err, warn)
		}
		if o.Catalog, err = o.Catalog.With(m); err != nil {
			t.Fatal(err)
		}
	}
}

// allOf makes one change to a rig of several.
func allOf(changes ...func(*Options, *service.Options)) func(*Options, *service.Options) {
	return func(o *Options, s *service.Options) {
		for _, change := range changes {
			change(o, s)
		}
	}
}

// dropsSoftHyphens is the normalizer of a tokenizer that drops every soft hyphen.
var dropsSoftHyphens = map[string]any{"normalizer": map[string]any{
	"type": "Replace", "pattern": map[string]any{"String": "\u00ad"}, "content": "",
}}

// In one batch of good and bad items each bad one has an error of its own, that names it, and each
// good one the answer that it has alone.
func TestExtractBadItemsAmongGood(t *testing.T) {
	const gliner, bi = "gliner:GLiNERAdapter", "gliner_bi:GLiNERBiAdapter"
	const classes, zero = "gliclass:GLiClassAdapter", "nli_classification:NLIClassificationAdapter"
	drops := func(id, adapter, of string) func(*Options, *service.Options) {
		return besideChanged(t, "acme/"+id, adapter, of, "tokenizer.json", dropsSoftHyphens)
	}
	r := start(t, allOf(drops("spans", gliner, "gliner-deberta-span"),
		drops("tokens", gliner, "gliner-modernbert-token"), drops("relations", gliner, "relex-span"),
		drops("tower", bi, "gliner-bi-modernbert-span"), drops("classes", classes, "gliclass-modern"),
		besideChanged(t, "acme/zero", zero, "text-deberta-zero", "config.json", nil),
		drops("pairs", zero, "text-modernbert-zero"), drops("roberta", zero, "pipeline-zero-shot")))
	const labels = `"labels":["city","person"]`
	for name, c := range map[string]struct {
		params string
		bad    map[string]string // texts, and what their errors say
		good   []string
	}{
		"spans": {`{` + labels + `,"options":{"threshold":0.3}}`, map[string]string{
			"": "blank", "\u3000\n": "blank", "\u00ad": "drops", "\u00ad \u00ad": "drops",
		}, []string{"Bob", "\u00ada", "a \u00ad b"}},
		"tokens": {`{` + labels + `,"options":{"threshold":0.3}}`, map[string]string{
			"": "blank", "\t": "blank", "\u00ad": "drops",
		}, []string{"Bob", "<<ENT>> Bob <<SEP>>"}},
		"relations": {`{` + labels + `,"options":{"relation_labels":["in"]}}`, map[string]string{
			"": "blank", "\t": "blank", "\u00ad": "drops",
		}, []string{"Bob", "<<REL>> Ann"}},
		"tower": {`{` + labels + `,"options":{"threshold":0.3}}`, map[string]string{
			"": "blank", "\t": "blank", "\u00ad": "drops",
		}, []string{"Bob"}},
		"classes": {`{` + labels + `}`, map[string]string{
			"": "no text", "\t": "no text", "\x1c\u3000": "no text", "a <<LABEL>> b": "<<LABEL>>",
			"a <<SEP>> b": "<<SEP>>", "\u00ad": "drops", "\u00ad \u00ad": "drops",
		}, []string{"Bob", "\u00ada"}},
		"instructed classes": {`{` + labels + `,"instruction":"of news","options":{"examples":[` +
			`{"text":"Ann","labels":["person"]}]}}`, map[string]string{"": "no text", "\u00ad": "drops"},
			[]string{"Bob"}},
		"zero": {`{` + labels + `}`, map[string]string{
			"": "blank", "\u3000\n": "blank",
		}, []string{"Bob", "<<SEP>>"}},
		"pairs": {`{` + labels + `}`, map[string]string{
			"": "blank", "\u00ad": "drops", "\u00ad\u00ad": "drops",
		}, []string{"Bob", "[SEP] Bob", "[SEP]", "\u00ada"}},
		"roberta": {`{` + labels + `}`, map[string]string{"": "blank", "\u00ad": "drops"},
			[]string{"Bob", "</s>", "\u00ada"}},
	} {
		model := "acme/" + name[strings.LastIndexByte(name, ' ')+1:]
		alone := map[string]string{}
		for _, text := range c.good {
			a, got := r.find(model, c.params, text)
			if a.status != 200 || got.Items[1].Error != nil {
				t.Errorf("%s, %q alone: %d %.300s", name, text, a.status, a.body)
				continue
			}
			alone[text] = fmt.Sprint(got.Items[1].Entities, got.Items[1].Classifications)
		}
		texts := append([]string{}, c.good...)
		for text := range maps.Keys(c.bad) {
			texts = append(texts, text, c.good[0])
		}
		a, got := r.find(model, c.params, texts...)
		if a.status != 200 || len(got.Items) != len(texts)+1 {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
			continue
		}
		for i, text := range texts {
			item, want := got.Items[i+1], c.bad[text]
			switch e := item.Error; {
			case want == "" && (e != nil || fmt.Sprint(item.Entities, item.Classifications) != alone[text]):
				t.Errorf("%s, %q: %v %+v; alone %s", name, text, e, item, alone[text])
			case want != "" && (e == nil || e.Code != "INVALID_INPUT" || !strings.Contains(e.Message, want) ||
				!strings.Contains(e.Message, fmt.Sprintf("items[%d]", i+1))):
				t.Errorf("%s, item %d, %q: %+v; want %q", name, i+1, text, e, want)
			}
		}
	}
}

// A model whose files no family reads is refused with its file, key and value; the server goes on,
// and answers from its other models.
func TestExtractRefusesBrokenModels(t *testing.T) {
	const gliner, bi = "gliner:GLiNERAdapter", "gliner_bi:GLiNERBiAdapter"
	const classes = "gliclass:GLiClassAdapter"
	const glinerFile, file, tokens = "gliner_config.json", "config.json", "tokenizer.json"
	for _, c := range []struct {
		adapter, of, file string
		changes           map[string]any
		wants             []string
	}{
		{gliner, "gliner-bert-span", glinerFile, map[string]any{"max_width": 0}, []string{"max_width", "0"}},
		{gliner, "gliner-bert-span", glinerFile, map[string]any{"max_width": 1_000_000},
			[]string{"max_width", "1000000"}},
		{gliner, "gliner-bert-span", glinerFile, map[string]any{"span_mode": "conv"},
			[]string{"span_mode", "conv"}},
		{gliner, "gliner-bert-span", glinerFile, map[string]any{"encoder_config.model_type": "gpt2"},
			[]string{"encoder_config.model_type", "gpt2"}},
		{gliner, "gliner-bert-token", glinerFile, map[string]any{"span_mode": "markerV0"},
			[]string{"span_rep_layer.span_rep_layer.project_start.0.weight"}},
		{gliner, "gliner-bert-span", glinerFile, map[string]any{"span_mode": "token_level"},
			[]string{"scorer.proj_token.weight"}},
		{classes, "gliclass-modern", file, map[string]any{"scorer_type": "bilinear"},
			[]string{"scorer_type", "bilinear"}},
		{classes, "gliclass-modern", file, map[string]any{"encoder_config.model_type": "gpt2"},
			[]string{"model_type", "gpt2"}},
		{classes, "gliclass-modern", file, map[string]any{"scorer_type": "mlp"}, []string{"scorer.mlp"}},
		// A token without a row: both numbers are said.
		{gliner, "gliner-bert-span", tokens, map[string]any{"model.vocab.zzzz": 300},
			[]string{tokens, "ids up to 300", "263 entries"}},
		{classes, "gliclass-modern", tokens, map[string]any{"model.vocab.zzzz": 88},
			[]string{tokens, "ids up to 88", "88 entries"}},
		{bi, "gliner-bi-modernbert-span", "labels_tokenizer/" + tokens,
			map[string]any{"model.vocab.zzzz": 999},
			[]string{"of the labels has ids up to 999", "label tower's vocabulary has "}},
	} {
		r := start(t, allOf(withExtractors(t),
			besideChanged(t, "acme/broken", c.adapter, c.of, c.file, c.changes)))
		a, _ := r.find("acme/broken", `{"labels":["a","b"]}`)
		for _, want := range append(c.wants, "acme/broken") {
			if a.status < 400 || !strings.Contains(string(a.body), want) {
				t.Errorf("%s, %v: %d %.400s; want %q", c.of, c.changes, a.status, a.body, want)
			}
		}
		if a, _ := r.find("acme/tower", `{"labels":["a","b"]}`); a.status != 200 {
			t.Errorf("%v: the next model: %d %.300s", c.changes, a.status, a.body)
		}
	}
}
