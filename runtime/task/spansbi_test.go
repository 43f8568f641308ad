package task_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/task"
)

// biEntry is the entry of a bi-encoder in a directory.
func biEntry(t testing.TB, name, dir string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {extract: {}}
profiles:
  default:
    adapter_path: "sie_server.adapters.gliner_bi:GLiNERBiAdapter"
    max_batch_tokens: 4096
    compute_precision: float32
    adapter_options:
      runtime: {threshold: 0.3, precompute_labels: true}
`, name, dir))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Entities are the package's, whether the labels' rows are kept or not.
func TestSpansOfBiEncodersEqualPackage(t *testing.T) {
	for _, name := range []string{"gliner-bi-modernbert-span", "gliner-bi-deberta-token"} {
		r := start(t, nil, nil, biEntry(t, name, golden.Open(t, name).Dir))
		for _, text := range readTexts[spansText](t, name) {
			for n, q := range text.Requests {
				res, err := r.Extract(t.Context(), &ExtractRequest{Model: name,
					Texts: []string{"x", text.Text}, Labels: text.Labels, Options: map[string]any{
						"threshold": q.Threshold, "flat_ner": q.FlatNER, "multi_label": q.MultiLabel,
						"precompute_labels": n%2 == 0,
					}})
				if err != nil || res.Found[1].Err != nil {
					t.Fatal(err, res)
				}
				got := res.Found[1].Entities
				same := len(got) == len(q.Entities)
				for i := 0; same && i < len(got); i++ {
					e := q.Entities[i]
					want := api.Entity{Text: e.Text, Label: e.Label, Start: e.Start, End: e.End,
						Score: got[i].Score}
					same = fmt.Sprint(got[i]) == fmt.Sprint(want) && math.Abs(got[i].Score-e.Score) < 1e-4
				}
				if !same {
					t.Errorf("%s: %q, threshold %v, flat %v, multi %v:\n got %v\nwant %v", name, text.Text,
						q.Threshold, q.FlatNER, q.MultiLabel, got, q.Entities)
				}
			}
		}
	}
}

// A label's scores do not depend on the others, on company, or on who asked before: they are equal
// bit for bit, with 1,000 labels too. Which spans are left does depend on the others.
func TestSpansOfBiEncodersChangeNoBits(t *testing.T) {
	const name = "gliner-bi-modernbert-span"
	r := start(t, nil, nil, biEntry(t, name, golden.Open(t, name).Dir))
	texts := []string{"Angela Merkel lived in Berlin, not in New York.", "lived in Berlin.",
		strings.Repeat("Angela Merkel lived in Berlin. ", 10)}
	find := func(r *rig, labels []string, texts ...string) []task.Extracted {
		res, err := r.Extract(context.Background(), &ExtractRequest{Model: name, Labels: labels, Texts: texts,
			Options: map[string]any{"threshold": 0.3, "flat_ner": false, "multi_label": true}})
		if err != nil {
			t.Error(err)
			return make([]task.Extracted, len(texts))
		}
		return res.Found
	}
	scores := func(found task.Extracted) map[string]float64 {
		all := map[string]float64{}
		for _, e := range found.Entities {
			all[fmt.Sprint(e.Label, e.Start, e.End)] = e.Score
		}
		return all
	}
	many := []string{"city", "person"}
	for i := range 998 {
		many = append(many, fmt.Sprint("kind ", i))
	}
	want := find(r, []string{"person", "city"}, texts...)
	check := func(what string, i int, got task.Extracted) {
		t.Helper()
		same, of := 0, scores(want[i])
		for key, score := range scores(got) {
			if before, ok := of[key]; ok && before != score {
				t.Errorf("%s: text %d: %s has the score %v, before %v", what, i, key, score, before)
			} else if ok {
				same++
			}
		}
		if same == 0 {
			t.Errorf("%s: text %d: nothing is found again", what, i)
		}
	}
	cold := start(t, nil, nil, biEntry(t, name, golden.Open(t, name).Dir))
	for what, got := range map[string][]task.Extracted{
		"again":          find(r, []string{"person", "city"}, texts...),
		"one more label": find(r, []string{"city", "date", "person"}, texts...),
		"100 labels":     find(r, many[:100], texts...),
		"alone":          {find(r, many[:3], texts[0])[0], find(r, many[:4], texts[1])[0]},
		"1,000 labels":   find(cold, many, texts[0]),
	} {
		for i := range got {
			check(what, i, got[i])
		}
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			labels := []string{"person", "city", fmt.Sprint("kind ", n/2)}
			for i, got := range find(cold, labels, texts...) {
				check("at once", i, got)
			}
		})
	}
	all.Wait()
}

// What a model keeps of labels is part of its bytes, within the bound of one model.
func TestSpansOfBiEncodersCountLabels(t *testing.T) {
	const name, most = "gliner-bi-modernbert-span", 20_000
	r := start(t, func(o *Options) { o.LabelCacheBytes = most }, nil,
		biEntry(t, name, golden.Open(t, name).Dir))
	ask := func(options map[string]any, labels ...string) int64 {
		t.Helper()
		if _, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: labels,
			Texts: []string{"Berlin"}, Options: options}); err != nil {
			t.Fatal(err)
		}
		l := r.Loaded(name)
		return l.Bytes() - l.Weights().Bytes()
	}
	kept := func(labels ...string) int64 { return ask(nil, labels...) }
	if n := ask(map[string]any{"precompute_labels": false}, "city"); n != 0 {
		t.Errorf("%d bytes of labels that are not to be kept", n)
	}
	one := kept("city")
	if again, two := kept("city"), kept("person"); one <= 0 || again != one || two <= one {
		t.Errorf("%d bytes with one label, %d when it is asked for again, %d with two", one, again, two)
	}
	last := int64(0)
	for i := range 60 {
		if last = kept(fmt.Sprint("kind ", i)); last > most {
			t.Fatalf("%d bytes after %d labels, with a bound of %d", last, i+3, most)
		}
	}
	if last <= most/2 {
		t.Errorf("%d bytes of 62 labels, with a bound of %d", last, most)
	}
}

// Rows of labels belong to one model at one revision: on a server that has another one, or the one
// before, each answers as it does alone.
func TestSpansOfBiEncodersKeepLabelsByModel(t *testing.T) {
	const name = "gliner-bi-modernbert-span"
	dir := golden.Open(t, name).Dir
	turned := copyModel(t, name) // its projection of labels has the other sign
	file := filepath.Join(turned, "model.safetensors")
	tensors := readTensors(t, file)
	for i, v := range tensors["token_rep_layer.labels_projection.weight"].data {
		tensors["token_rep_layer.labels_projection.weight"].data[i] = -v
	}
	writeTensors(t, file, tensors)
	find := func(r *rig, id string) string {
		t.Helper()
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: id, Labels: []string{"person", "city"},
			Texts:   []string{"Angela Merkel lived in Berlin, not in New York."},
			Options: map[string]any{"threshold": 0.3, "flat_ner": false, "multi_label": true}})
		if err != nil || res.Found[0].Err != nil || len(res.Found[0].Entities) == 0 {
			t.Fatal(id, err, res)
		}
		return fmt.Sprint(res.Found[0].Entities)
	}
	alone := func(dir string) string {
		return find(start(t, nil, nil, biEntry(t, "alone", dir)), "alone")
	}
	one, other := alone(dir), alone(turned)
	if one == other {
		t.Fatal("the weights make no difference")
	}
	r := start(t, nil, nil, biEntry(t, "one", dir), biEntry(t, "other", turned))
	for range 2 {
		if a, b := find(r, "one"), find(r, "other"); a != one || b != other {
			t.Errorf("together:\n %s\n %s\nalone:\n %s\n %s", a, b, one, other)
		}
	}
	c, err := catalog.Of(biEntry(t, "one", turned)) // the id now means other weights
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetCatalog(c); err != nil {
		t.Fatal(err)
	}
	if got := find(r, "one"); got != other {
		t.Errorf("with changed weights:\n %s\nwant:\n %s", got, other)
	}
}

// Without a tokenizer of its own the label tower has that of the repository that lends it; one that
// nobody lends is an error that says so.
func TestSpansOfBiEncodersNeedALender(t *testing.T) {
	const name = "gliner-bi-deberta-token"
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, name).Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "labels_tokenizer")); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, biEntry(t, name, dir))
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: []string{"city"},
		Texts: []string{"Berlin"}})
	if err == nil || !strings.Contains(fmt.Sprint(err, errs.As(err)), "hf_tokenizer_dependencies") {
		t.Errorf("no tokenizer of labels: %v", err)
	}
}

// Code that the tokenizer of labels runs is refused, as that of the model's own tokenizer is.
func TestSpansOfBiEncodersRunNoCode(t *testing.T) {
	const name = "gliner-bi-deberta-token"
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, name).Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "labels_tokenizer", "tokenizer_config.json"),
		[]byte(`{"auto_map": {"AutoTokenizer": ["tok_x.X", null]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, biEntry(t, name, dir))
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: []string{"city"},
		Texts: []string{"Berlin"}})
	if err == nil || !strings.Contains(fmt.Sprint(err, errs.As(err)), "tok_x.py: X") {
		t.Errorf("a tokenizer of labels with its own code: %v", err)
	}
}

// Labels and options are refused as those of uni-encoders; no prompt bounds the labels.
func TestSpansOfBiEncodersRefuse(t *testing.T) {
	const name = "gliner-bi-modernbert-span"
	r := start(t, nil, nil, biEntry(t, name, golden.Open(t, name).Dir))
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("l", i, strings.Repeat("é", 120))
	}
	for what, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string
	}{
		"no labels":      {nil, nil, "requires labels"},
		"blank":          {[]string{"a", " "}, nil, "params.labels[1] is blank"},
		"twice":          {[]string{"a", "b", "a"}, nil, "params.labels[0] again"},
		"129 characters": {[]string{strings.Repeat("é", 129)}, nil, "at most 128"},
		"1,001 labels":   {many, nil, "1000"},
		"threshold 1.5":  {[]string{"a"}, map[string]any{"threshold": 1.5}, "from 0 to 1"},
		"relation labels": {[]string{"a"}, map[string]any{"relation_labels": []any{"r"}},
			"finds no relations"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: []string{"Berlin"},
			Labels: c.labels, Options: c.options})
		if e := errs.As(err); e == nil || e.Info().Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v; want a 400 with %q", what, err, c.want)
		}
	}
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Texts: []string{"Berlin"},
		Labels: append(many[:999:999], "<<ENT>> is nothing here")})
	if err != nil {
		t.Errorf("1,000 long labels: %v", err)
	}
}
