package server

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

const scorePath = "/v1/score/" + reranker

func TestScore(t *testing.T) {
	f := &fakeTasks{}
	r := start(t, nil, with(f))
	body := `{"query":{"id":"q1","text":"red cat"},"items":[{"text":"dog"},{"id":"b","text":"red cat"},{"text":"cat"},{"id":"","text":"red"}],` +
		`"instruction":"find","options":{"score_mode":"dense"}}`
	a := r.do("POST", scorePath, body, "Accept", "application/json", "X-SIE-SDK-Version", "0.6.30")
	var got struct {
		Model   string
		QueryID *string `json:"query_id"`
		Scores  []struct {
			ItemID string `json:"item_id"`
			Score  float64
			Rank   int
		}
		Usage map[string]any
	}
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != 200 {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	var order []string
	for i, s := range got.Scores {
		order = append(order, s.ItemID)
		if s.Rank != i {
			t.Errorf("rank %d at place %d", s.Rank, i)
		}
	}
	// "cat" and "red" tie: they keep their order. An empty id is an id.
	if want := []string{"b", "item-2", "", "item-0"}; !reflect.DeepEqual(order, want) ||
		got.Model != reranker || got.QueryID == nil || *got.QueryID != "q1" {
		t.Errorf("%s", a.body)
	}
	if want := map[string]any{
		"input_tokens": 40.0, "input_tokens_details": map[string]any{"content_tokens": 28.0},
	}; !reflect.DeepEqual(got.Usage, want) {
		t.Errorf("usage %v", got.Usage)
	}
	for name, want := range map[string]string{
		"X-SIE-Server-Version":             "0.6",
		"X-SIE-Units-Pairs":                "4",
		"X-SIE-Units-Input-Tokens":         "40",
		"X-SIE-Units-Content-Input-Tokens": "28",
		"X-SIE-Served-By":                  "local",
		"Content-Type":                     "application/json",
	} {
		if a.header.Get(name) != want {
			t.Errorf("%s: %q", name, a.header.Get(name))
		}
	}
	if q := f.scored[0]; q.Query.Text != "red cat" || len(q.Items) != 4 || q.Instruction == nil ||
		*q.Instruction != "find" || q.Options["score_mode"] != "dense" {
		t.Errorf("asked %+v", q)
	}

	// msgpack in and out
	packed, err := msgp.AppendIntf(nil,
		map[string]any{"query": map[string]any{"text": "a"}, "items": []any{map[string]any{"text": "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	a = r.do("POST", scorePath, string(packed), "Content-Type", "application/msgpack")
	back, rest, err := msgp.ReadIntfBytes(a.body)
	if err != nil || len(rest) > 0 || a.header.Get("Content-Type") != "application/msgpack" {
		t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	m := back.(map[string]any)
	if first := m["scores"].([]any)[0].(map[string]any); m["query_id"] != nil ||
		first["item_id"] != "item-0" || first["score"] != 1.0 {
		t.Errorf("%v", back)
	}
	if n := r.metric(
		`sie_requests_total{endpoint="score",model="acme/reranker",status="success"}`); n != "2" {
		t.Errorf("counted %q", n)
	}
	if n := r.metric(`sie_tokens_processed_total{model="acme/reranker"}`); n != "50" {
		t.Errorf("%q tokens", n)
	}
}

func TestScoreErrors(t *testing.T) {
	f := &fakeTasks{prepares: true}
	r := start(t, func(o *Options, _ *service.Options) { o.Limits.MaxScoreItems = 3 }, with(f))
	const good = `{"query":{"text":"q"},"items":[{"text":"d"}]}`
	for _, c := range []struct {
		path, body string
		err        error
		scores     []float64
		status     int
		code, text string
	}{
		{scorePath, `{"items":[{"text":"d"}]}`, nil, nil, 400, "INVALID_INPUT",
			"missing required field `query`"},
		{scorePath, `{"query":{"text":"q"},"items":[]}`, nil, nil, 400, "INVALID_INPUT", "must not be empty"},
		{scorePath, `{"query":{},"items":[{"text":"d"}]}`, nil, nil, 400, "INVALID_INPUT",
			"Field 'query' has no text"},
		{scorePath, `{"query":{"text":"q"},"items":[{"text":"d"},{}]}`, nil, nil, 400, "INVALID_INPUT",
			"Field 'items[1]' has no text"},
		{scorePath, `{"query":{"text":"q"},"items":[{},{},{},{}]}`, nil, nil, 400, "INVALID_INPUT",
			"at most 3 candidates"},
		{"/v1/score/" + model, good, nil, nil, 400, "INVALID_INPUT", "does not support scoring"},
		{"/v1/score/none", good, nil, nil, 404, "MODEL_NOT_FOUND", "not found"},
		{scorePath, good, errs.Loading(reranker), nil, 503, "MODEL_LOADING", "is loading"},
		{scorePath, good, errs.TooLong("items", "too long"), nil, 400, "INPUT_TOO_LONG", "too long"},
		{scorePath, good, errors.New("secret"), nil, 500, "INTERNAL_ERROR", "internal server error"},
		{scorePath, good, nil, []float64{math.NaN()}, 500, "INFERENCE_ERROR", "non-finite scores"},
		{scorePath, good, nil, []float64{math.Inf(1)}, 500, "INFERENCE_ERROR", "non-finite scores"},
	} {
		f.err, f.scores = c.err, c.scores
		a := r.do("POST", c.path, c.body)
		if e := a.failure(t); a.status != c.status || e.Code != c.code ||
			!strings.Contains(e.Detail.Message, c.text) || strings.Contains(string(a.body), "secret") {
			t.Errorf("%s %.60s: %d %s, want %d %s %q",
				c.path, c.body, a.status, a.body, c.status, c.code, c.text)
		}
	}
}

// Work is cancelled when the client leaves, and when the server's time limit is over.
func TestScoreIsCancelled(t *testing.T) {
	f := &fakeTasks{held: make(chan struct{})}
	r := start(t, nil, with(f))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.try(ctx, "POST", scorePath, `{"query":{"text":"q"},"items":[{"text":"d"}]}`)
		done <- err
	}()
	testrig.Until(t, "it is being scored",
		func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.scored) == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("the client got an answer")
	}
	testrig.Until(t, "the work was cancelled", func() bool {
		return r.metric(
			`sie_requests_total{endpoint="score",model="acme/reranker",status="cancelled"}`) == "1"
	})
}
