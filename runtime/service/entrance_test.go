package service_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// request is what a second entrance, which has no HTTP, knows of a request.
type request[Q, R any] struct {
	endpoint string
	model    string
	bytes    int64
	body     Q
	prepare  func(service.Model, Q) (*service.Prepared[R], error)
	outcome  func(R) *api.Outcome
	admitted func(*admit.Work) // nil: nothing happens then
}

// enter is such an entrance: the request is received, admitted, prepared, run and counted.
func enter[Q, R any](s *service.Service, r request[Q, R]) (res R, err error) {
	call := s.Call(r.endpoint)
	var out *api.Outcome
	defer func() { call.End(out, err) }()
	if err = s.Gate().Reserve(r.bytes); err != nil {
		return res, err
	}
	defer s.Gate().Free(r.bytes)
	w, err := s.Gate().Enter(admit.Request{Bytes: r.bytes, Field: "frames"})
	if err != nil {
		return res, err
	}
	defer w.End()
	m, err := s.Find(r.model)
	if err != nil {
		return res, err
	}
	call.Model = m.Entry().ID
	p, err := r.prepare(m, r.body)
	if err != nil {
		return res, err
	}
	if r.admitted != nil {
		r.admitted(w)
	}
	if res, err = p.Run(w); err == nil {
		out = r.outcome(res)
	}
	return res, err
}

func encoding(model string, texts ...string) request[*api.EncodeRequest, *api.EncodeResponse] {
	return request[*api.EncodeRequest, *api.EncodeResponse]{
		endpoint: "encode",
		model:    model,
		bytes:    100,
		body:     &api.EncodeRequest{Items: items(texts...)},
		prepare:  service.Model.PrepareEncode,
		outcome:  func(r *api.EncodeResponse) *api.Outcome { return &r.Outcome },
	}
}

// counted returns how many requests with an outcome were counted.
func counted(r *servicetest.Rig, endpoint, model, status string) float64 {
	return testrig.Metric(r.T, r.Gatherer(), "sie_requests_total", endpoint, model, status)
}

// All operations run and are counted without HTTP.
func TestSecondEntrance(t *testing.T) {
	s, r := start(t, []string{mean}, testmodels.Entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir,
		"cross_encoder", "tasks: {score: {}}"), testmodels.Entry(t, "tags",
		golden.Open(t, "pipeline-tags").Dir, "token_classification", "tasks: {extract: {}}"))
	texts := testmodels.Words(3)
	want := r.Rows(&servicetest.Request{Model: mean, Texts: texts})
	vectors, err := enter(s, encoding(mean, texts...))
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if !bytes.Equal(vectors.Items[i].Dense.Values.Data, want[i]) {
			t.Errorf("vector %d differs", i)
		}
	}
	scoring := request[*api.ScoreRequest, *api.ScoreResponse]{
		endpoint: "score",
		model:    "ce",
		bytes:    10,
		body:     &api.ScoreRequest{Query: items("the cat")[0], Items: items("a", "the cat sat")},
		prepare:  service.Model.PrepareScore,
		outcome:  func(r *api.ScoreResponse) *api.Outcome { return &r.Outcome },
	}
	if scores, err := enter(s, scoring); err != nil || len(scores.Scores) != 2 ||
		scores.Scores[0].Score < scores.Scores[1].Score {
		t.Errorf("%+v, %v", scores, err)
	}
	extraction := request[*api.ExtractRequest, *api.ExtractResponse]{
		endpoint: "extract",
		model:    "tags",
		bytes:    10,
		body:     &api.ExtractRequest{Items: items("Wolfgang lives in Berlin")},
		prepare:  service.Model.PrepareExtract,
		outcome:  func(r *api.ExtractResponse) *api.Outcome { return &r.Outcome },
	}
	if found, err := enter(s, extraction); err != nil || len(found.Items) != 1 ||
		len(found.Items[0].Entities) == 0 {
		t.Errorf("%+v, %v", found, err)
	}
	for _, c := range []struct {
		endpoint, model string
		tokens          int
	}{{"encode", mean, vectors.Usage.InputTokens}, {"score", "ce", 0}, {"extract", "tags", 0}} {
		if n := counted(r, c.endpoint, c.model, "success"); n != 1 {
			t.Errorf("%s of %s was counted %v times", c.endpoint, c.model, n)
		}
		for name, labels := range map[string][]string{
			"sie_request_duration_seconds": {c.endpoint, c.model, "total"}, "sie_batch_size": {c.model},
		} {
			if n := testrig.Metric(t, r.Gatherer(), name, labels...); n != 1 {
				t.Errorf("%s of %s: %v samples", name, c.model, n)
			}
		}
		if n := testrig.Metric(t, r.Gatherer(), "sie_tokens_processed_total", c.model); n <= 0 ||
			c.tokens > 0 && n != float64(c.tokens) {
			t.Errorf("%s: %v tokens", c.model, n)
		}
	}
	if a := s.Status().Activity; a.Requests != 3 || a.Failed != 0 || a.Items != 6 || a.Running != 0 ||
		s.Gate().Held() != 0 {
		t.Errorf("%+v; %d bytes are held", a, s.Gate().Held())
	}
}

// A request that is refused, by its model, its options or its size, is counted once and holds
// nothing.
func TestSecondEntranceRefuses(t *testing.T) {
	r := servicetest.Start(t, func(o *servicetest.Options) { o.Admit.MaxHeldBytes = 10_000 }, []string{mean})
	s := r.Service
	sparse, large, bulky := encoding(mean, "a"), encoding(mean, "a"), encoding(mean, testmodels.Words(200)...)
	sparse.body.OutputTypes, large.bytes = []string{"sparse"}, 10_001
	for _, c := range []struct {
		request       request[*api.EncodeRequest, *api.EncodeResponse]
		status        int
		says          string
		model, counts string
	}{
		{encoding("none", "a"), 404, "'none' not found", "", "rejected"},
		{sparse, 400, "does not support output types", mean, "rejected"},
		{large, 503, "cannot add 10001 more (limit: 10000)", "", "queue_full"},
		{bulky, 400, "Field 'frames': the results take", mean, "rejected"},
	} {
		before := max(0, counted(r, "encode", c.model, c.counts))
		_, err := enter(s, c.request)
		if e := errs.As(err); e == nil || e.Status != c.status || !strings.Contains(e.Message, c.says) {
			t.Errorf("%v, want a %d that says %q", err, c.status, c.says)
		}
		if after := counted(r, "encode", c.model, c.counts); after != before+1 {
			t.Errorf("%q: %s was counted %v times, then %v", c.says, c.counts, before, after)
		}
	}
	if _, err := enter(s, encoding(mean, "a")); err != nil || s.Gate().Held() != 0 ||
		s.Gate().Running() != 0 {
		t.Errorf("afterwards: %v, %d bytes, %d requests", err, s.Gate().Held(), s.Gate().Running())
	}
}

// While a drain goes on, new requests are refused before a model is touched, and what was admitted
// is answered.
func TestSecondEntranceDrains(t *testing.T) {
	r := servicetest.Start(t, servicetest.Held(3), []string{mean, testmodels.CLS})
	s := r.Service
	admitted := make(chan error, 1)
	go func() {
		_, err := enter(s, encoding(mean, "the cat", "sat"))
		admitted <- err
	}()
	r.Queued(mean, 2)
	done := make(chan error, 1)
	go func() { done <- s.Gate().Drain(t.Context()) }()
	testrig.Until(t, "it drains", s.Gate().Draining)
	_, err := enter(s, encoding(testmodels.CLS, "a"))
	if e := errs.As(err); e == nil || e.Code != errs.Draining || e.Status != 503 || e.RetryAfter == 0 ||
		r.State(testmodels.CLS) != registry.Available {
		t.Errorf("%v; the model is %s", err, r.State(testmodels.CLS))
	}
	if n := counted(r, "encode", "", "error"); n != 1 {
		t.Errorf("the refusal was counted %v times", n)
	}
	select {
	case err := <-done:
		t.Fatalf("drained with a request running: %v", err)
	default:
	}
	// the third text
	if _, err := find(t, s, mean).Encode(free(t), &api.EncodeRequest{Items: items("a")}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-admitted, <-done); err != nil {
		t.Error(err)
	}
}

// Requests that wait in a queue end when their time is up, when a drain runs out of time, and when
// their client leaves. Their texts leave the queue, and each is counted.
func TestSecondEntranceStopsWaiting(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		timeout time.Duration
		end     func(*service.Service, *admit.Work)
		code    errs.Code
		counts  string
	}{
		"deadline": {50 * time.Millisecond, func(*service.Service, *admit.Work) {},
			errs.DeadlineExceeded, "error"},
		"drain": {0, func(s *service.Service, _ *admit.Work) { _ = s.Gate().Drain(over) },
			errs.Draining, "error"},
		"cancel": {0, func(_ *service.Service, w *admit.Work) { w.Cancel(admit.ErrClientGone) }, "",
			"cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			r := servicetest.Start(t,
				func(o *servicetest.Options) { servicetest.Held(3)(o); o.Admit.Timeout = c.timeout },
				[]string{mean})
			s := r.Service
			if err := s.Preload(t.Context(), mean); err != nil {
				t.Fatal(err)
			}
			works, done := make(chan *admit.Work, 1), make(chan error, 1)
			q := encoding(mean, "the cat", "sat")
			q.admitted = func(w *admit.Work) { works <- w }
			go func() {
				_, err := enter(s, q)
				done <- err
			}()
			w := <-works
			if c.timeout == 0 {
				r.Queued(mean, 2)
			}
			c.end(s, w)
			err := <-done
			if e := errs.As(err); c.code != "" && e.Code != c.code ||
				c.code == "" && !errors.Is(err, admit.ErrClientGone) {
				t.Errorf("ended with %v", err)
			}
			if n := counted(r, "encode", mean, c.counts); n != 1 {
				t.Errorf("%s was counted %v times", c.counts, n)
			}
			// The next batch leaves when three texts wait: none of those whose request has ended is
			// run.
			if _, err := find(t, s, mean).Encode(free(t),
				&api.EncodeRequest{Items: items("a", "b", "c")}); err != nil {
				t.Fatal(err)
			}
			if n := testrig.Metric(t, r.Gatherer(), "sie_tokens_processed_total", mean); n > 0 {
				t.Errorf("%v tokens were counted for requests without an answer", n)
			}
			if s.Gate().Running() != 0 || s.Gate().Held() != 0 {
				t.Errorf("%d requests, %d bytes", s.Gate().Running(), s.Gate().Held())
			}
		})
	}
}
