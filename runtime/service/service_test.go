package service_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/runtime/testmodels"
)

const mean = testmodels.Mean

func start(t *testing.T, ids []string, extra ...*catalog.Model) (*service.Service, *servicetest.Rig) {
	t.Helper()
	r := servicetest.Start(t, nil, ids, extra...)
	return r.Service, r
}

func find(t *testing.T, s *service.Service, id string) service.Model {
	t.Helper()
	m, err := s.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// free returns the work of a caller that nothing bounds.
func free(t *testing.T) *admit.Work { return admit.Unbounded(t.Context()) }

func items(texts ...string) []api.Item {
	out := make([]api.Item, len(texts))
	for i, s := range texts {
		out[i] = api.Item{Text: s, HasText: true}
	}
	return out
}

func TestEncode(t *testing.T) {
	s, r := start(t, []string{mean})
	texts := testmodels.Words(3)
	want := r.Rows(&servicetest.Request{Model: mean, Texts: texts})
	req := &api.EncodeRequest{Items: items(texts...)}
	req.Items[1].ID, req.Items[1].HasID = "", true
	req.Items[2].ID, req.Items[2].HasID = "z", true
	w, err := s.Gate().Enter(admit.Request{Began: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	res, err := find(t, s, mean).Encode(w, req)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range res.Items {
		if !bytes.Equal(it.Dense.Values.Data, want[i]) || it.Dense.Dims != 32 || it.ID != req.Items[i].ID ||
			it.HasID != (i > 0) || it.Sparse != nil || it.Multivector != nil {
			t.Errorf("item %d: %+v", i, it)
		}
	}
	o := res.Outcome
	if res.Model != mean || o.ModelID != mean || res.Usage.InputTokens == 0 || o.Timings.Total < time.Hour ||
		o.Timings.Preprocess < time.Hour || o.Items != 3 || o.Tokens != res.Usage.InputTokens ||
		o.Timings.Inference <= 0 || o.Timings.Inference > time.Minute || *res.Timing != *o.Timings.Wire() {
		t.Errorf("%+v, %+v, %+v", o, res.Timing, res.Usage)
	}
}

// Prepare runs its checks before anything is loaded, and a prepared request may run again.
func TestPrepareLoadsNothing(t *testing.T) {
	s, r := start(t, []string{mean})
	m := find(t, s, mean)
	if _, err := m.PrepareEncode(&api.EncodeRequest{
		Items: items("a"), OutputTypes: []string{"sparse"},
	}); errs.As(err).Status != 400 {
		t.Errorf("sparse vectors of a dense model: %v", err)
	}
	p, err := m.PrepareEncode(&api.EncodeRequest{Items: items("a")})
	if err != nil || r.State(mean) != registry.Available {
		t.Fatalf("%v; the model is %s", err, r.State(mean))
	}
	var rows [2][]byte
	for i := range rows {
		res, err := p.Run(free(t))
		if err != nil {
			t.Fatal(err)
		}
		rows[i] = res.Items[0].Dense.Values.Data
	}
	if r.State(mean) != registry.Loaded || !bytes.Equal(rows[0], rows[1]) || len(rows[0]) != 128 {
		t.Errorf("the model is %s; rows %x, %x", r.State(mean), rows[0], rows[1])
	}
	left := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if res, err := p.Run(admit.Unbounded(ctx)); err != left || res != nil {
		t.Errorf("%v, %v; want the cause", res, err)
	}
}

// A request sees one catalog snapshot: the entry that it found answers it, even when that entry has
// been removed since.
func TestOneSnapshotOfTheCatalog(t *testing.T) {
	s, r := start(t, []string{mean, testmodels.CLS})
	m, backend := find(t, s, mean), s.Backend()
	other, err := backend.Model(mean)
	if err != nil {
		t.Fatal(err)
	}
	rest, missing := r.Catalog().Select([]string{testmodels.CLS})
	if len(missing) > 0 {
		t.Fatal(missing)
	}
	if _, err := s.SetCatalog(rest); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(mean); errs.As(err).Status != 404 {
		t.Errorf("a model that was removed is found: %v", err)
	}
	req := &api.EncodeRequest{Items: items("a")}
	if _, err := m.Encode(free(t), req); err != nil {
		t.Error(err)
	}
	if _, err := backend.Encode(free(t), other, req); err != nil {
		t.Error(err)
	}
}

// An input that an operation does not read is refused with its name and place, not ignored.
func TestInputsThatAreNotRead(t *testing.T) {
	s, _ := start(t, []string{
		mean,
	}, testmodels.Entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}"),
		testmodels.Entry(t, "moods", testmodels.WithTokenizer(t, "classify-bert", "st-mean", nil),
			"sequence_classification", "tasks: {extract: {}}"))
	second := "b"
	image := []api.Item{
		{Text: "a", HasText: true}, {Extra: &api.ItemExtra{Images: []api.Media{{Data: []byte("x")}}}},
	}
	tokens := []api.Item{{Extra: &api.ItemExtra{Tokens: []int32{2, 3}}}}
	pairs := []api.Item{{Text: "a", HasText: true, Extra: &api.ItemExtra{Second: &second}}}
	both := func(a, b []api.Item) []api.Item { return append(append([]api.Item(nil), a...), b...) }
	encode := func(list []api.Item) error {
		_, err := find(t, s, mean).PrepareEncode(
			&api.EncodeRequest{Items: list, ForeignOptions: api.ForeignOptions{Field: "input"}})
		return err
	}
	score := func(query api.Item, list []api.Item) error {
		_, err := find(t, s, "ce").PrepareScore(&api.ScoreRequest{Query: query, Items: list})
		return err
	}
	classify := func(list []api.Item) error {
		_, err := find(t, s, "moods").PrepareClassify(&api.ClassifyRequest{Items: list})
		return err
	}
	extract := func(r api.ExtractRequest) error {
		_, err := find(t, s, "moods").PrepareExtract(&r)
		return err
	}
	why := "say why"
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"an image":             {encode(image), "items[1]"},
		"ids after a text":     {encode(both(items("a"), tokens)), "Field 'input[1]'"},
		"a text after ids":     {encode(both(tokens, items("a"))), "Field 'input[1]'"},
		"a pair for vectors":   {encode(pairs), "has two texts"},
		"ids for scores":       {score(items("q")[0], tokens), "token ids"},
		"a query without text": {score(api.Item{}, items("a")), "Field 'query' has no text"},
		"ids for classes":      {classify(tokens), "token ids"},
		"a text among pairs":   {classify(both(pairs, items("a"))), "Field 'items[1]'"},
		"a pair among texts":   {classify(both(items("a"), pairs)), "Field 'items[1]'"},
		"a schema": {extract(api.ExtractRequest{
			Items: items("a"), OutputSchema: api.Raw{Format: api.JSON, Data: []byte(`{"a":1}`)},
		}), "params.output_schema"},
		"an instruction": {extract(api.ExtractRequest{Items: items("a"), Instruction: &why}),
			"params.instruction"},
		"scores of vectors": {func() error {
			_, err := find(t, s, mean).PrepareScore(&api.ScoreRequest{
				Query: items("q")[0], Items: items("a"), Options: api.Options{"nothing": 1},
			})
			return err
		}(), errs.NoScoring(mean).Message},
		"an image to look into": {extract(api.ExtractRequest{Items: image}), "items[1]"},
	} {
		e := errs.As(c.err)
		if c.err == nil || e.Status != 400 || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v, want a 400 that says %q", what, c.err, c.says)
		}
	}
	for what, err := range map[string]error{
		"ids":    encode(tokens),
		"pairs":  classify(pairs),
		"texts":  classify(items("a")),
		"scores": score(items("q")[0], items("a")),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Scores come best first; equal scores keep the order of the request. Each score has its item's
// index.
func TestScoreRanks(t *testing.T) {
	s, _ := start(t, nil, testmodels.Entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder",
		"tasks: {score: {}}"))
	req := &api.ScoreRequest{
		Query:   items("the cat")[0],
		Items:   items("a", "the cat sat", "a", "zebra"),
		Options: api.Options{"output_dtype": "float32"},
	}
	req.Query.ID, req.Query.HasID = "q", true
	req.Items[1].ID, req.Items[1].HasID = "one", true
	res, err := find(t, s, "ce").Score(free(t), req)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int]int)
	for rank, x := range res.Scores {
		seen[x.Index] = rank
		if x.Rank != rank || x.ItemID != api.ItemID(&req.Items[x.Index], x.Index) ||
			rank > 0 && x.Score > res.Scores[rank-1].Score {
			t.Errorf("rank %d: %+v", rank, x)
		}
	}
	if len(res.Ignored) != 1 || res.Ignored[0] != "output_dtype" {
		t.Errorf("ignored options: %v", res.Ignored)
	}
	if len(seen) != 4 || seen[0]+1 != seen[2] || res.QueryID != "q" || !res.HasQuery ||
		!res.Usage.HasContent || res.Usage.ContentTokens <= 0 ||
		res.Usage.ContentTokens >= res.Usage.InputTokens {
		t.Errorf("%v, %+v", seen, res)
	}
}

// Other APIs reach the same models: with another spelling of the id, with token ids and with pairs.
func TestBackend(t *testing.T) {
	s, r := start(t, []string{mean}, testmodels.Entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir,
		"cross_encoder", "tasks: {score: {}}"))
	b := s.Backend()
	m, err := b.OpenAIModel("test__mean")
	if err != nil || m.ID != mean || m.CrossEncoder || m.Pooling != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	ids := []int32{2, 10, 11, 3}
	want := r.Rows(&servicetest.Request{Model: mean, Tokens: [][]int32{ids}})[0]
	res, err := b.Encode(free(t), m,
		&api.EncodeRequest{Items: []api.Item{{Extra: &api.ItemExtra{Tokens: ids}}}})
	if err != nil || !bytes.Equal(res.Items[0].Dense.Values.Data, want) {
		t.Errorf("%v; %+v, want %x", err, res, want)
	}
	ce, err := b.Model("ce")
	if err != nil || !ce.CrossEncoder || ce.Outputs[0] != "score" {
		t.Fatalf("%+v, %v", ce, err)
	}
	second := "the cat sat"
	classes, err := b.Classify(free(t), ce, &api.ClassifyRequest{
		Items: []api.Item{{Text: "the cat", HasText: true, Extra: &api.ItemExtra{Second: &second}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	scores, err := b.Score(free(t), ce, &api.ScoreRequest{Query: items("the cat")[0], Items: items(second)})
	if err != nil || len(classes.Scores) != 1 ||
		math.Abs(classes.Scores[0][0]-scores.Scores[0].Score) > 1e-9 ||
		classes.Usage.InputTokens != scores.Usage.InputTokens {
		t.Errorf("%v: %+v and %+v of one pair", err, classes, scores)
	}
	tokens, err := b.Tokenize(free(t), m, []string{"the cat"}, true)
	if err != nil || len(tokens) != 1 || len(tokens[0]) < 4 || !tokens[0][0].Special {
		t.Errorf("%+v, %v", tokens, err)
	}
	texts, err := b.Detokenize(free(t), m, [][]int32{{int32(tokens[0][1].ID)}}, true)
	if err != nil || texts[0] != tokens[0][1].Text {
		t.Errorf("%q, %v, want %q", texts, err, tokens[0][1].Text)
	}
	if info, err := b.Info(mean); err != nil || !info.Loaded {
		t.Errorf("%+v, %v", info, err)
	}
	tuned := testmodels.Family(t, "test/family", golden.Open(t, testmodels.Dirs[mean]).Dir,
		"  cls: {extends: default, adapter_options: {runtime: {pooling: cls}}}\n")
	with, err := r.Catalog().With(tuned)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetCatalog(with); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Model("test/family:cls"); err != nil || m.Pooling != "cls" || m.MaxBatchTokens != 4096 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := b.Model("nothing"); errs.As(err).Status != 404 {
		t.Errorf("%v", err)
	}
}
