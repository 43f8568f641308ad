package server

import (
	"context"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/worker"
)

// rerank answers POST /v1/rerank for SIE, Cohere v1 and Jina clients: the request's fields tell them apart, the answer is a
// superset.
func (s *Server) rerank(r *httpd.Request, _ string) { s.rerankAs(r, dialect.RouteRerank, 1) }

// rerankV2 answers POST /v2/rerank for Cohere v2 clients.
func (s *Server) rerankV2(r *httpd.Request, _ string) {
	s.rerankAs(r, dialect.RouteCohere, 2)
}

func (s *Server) rerankAs(r *httpd.Request, kind dialect.RouteKind, version int) {
	c := call{endpoint: "rerank", kind: kind, full: s.full.answer(s.worker.AllFull()), field: "documents"}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeRerank(body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		model, err := s.named(req.Model, "score")
		if err != nil {
			return "", err
		}
		m, err := s.scorer(model, s.worker.DescribeOpenAI)
		if err != nil {
			return known(m), err
		}
		wr := &worker.ScoreRequest{Model: m.ID, Query: req.Query, Texts: make([]string, len(req.Documents)), Field: "documents",
			Options: req.Options}
		for i := range req.Documents {
			wr.Texts[i] = req.Documents[i].Text
		}
		if req.NoTruncation {
			wr.Options = withOption(wr.Options, "overflow_policy", "error")
		}
		if req.MaxTokensPerDoc > 0 {
			if err := s.cutTexts(work, m.ID, wr.Texts, req.MaxTokensPerDoc); err != nil {
				return m.ID, err
			}
		}
		res, err := s.tasks.Score(work, wr)
		if err != nil {
			return m.ID, err
		}
		order, err := ranking(m.ID, res.Scores)
		if err != nil {
			return m.ID, err
		}
		if req.TopN > 0 && req.TopN < len(order) {
			order = order[:req.TopN]
		}
		out := api.RerankResponse{ID: api.NewID(), Model: model, APIVersion: version, Tokens: res.Tokens, Results: make([]api.RerankResult, len(order))}
		for rank, i := range order {
			out.Results[rank] = api.RerankResult{Index: i, Score: res.Scores[i]}
			if req.ReturnDocuments {
				out.Results[rank].Document = &req.Documents[i]
			}
		}
		warn(r, res.Ignored)
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendRerankJSON(dst, to, &out) })
		res.Timings.Total = time.Since(start)
		s.served(r, m.ID, "rerank", len(res.Scores), res.Tokens, res.Timings)
		return m.ID, nil
	})
}

// cutTexts keeps the first tokens of each text, in place.
func (s *Server) cutTexts(ctx context.Context, model string, texts []string, tokens int) error {
	read, err := s.tasks.Tokenize(ctx, model, texts, false)
	if err != nil {
		return err
	}
	for i, list := range read {
		if len(list) <= tokens {
			continue
		}
		if stop := list[tokens-1].Stop; stop != nil && *stop <= len(texts[i]) {
			texts[i] = texts[i][:*stop]
		}
	}
	return nil
}

// withOption adds an option that the request's own do not have.
func withOption(options map[string]any, key string, value any) map[string]any {
	if options == nil {
		options = make(map[string]any, 1)
	}
	if _, given := options[key]; !given {
		options[key] = value
	}
	return options
}

// named returns the model that a request names, or the server's default for a task.
func (s *Server) named(model, output string) (string, error) {
	if model != "" {
		return model, nil
	}
	return s.defaultModel(output)
}

// defaultModel is the first of the default models that gives the first of outputs that any of them gives, or the first of
// all, whose refusal then says what is wrong.
func (s *Server) defaultModel(outputs ...string) (string, error) {
	for _, o := range outputs {
		for _, id := range s.opt.DefaultModels {
			if m, err := s.worker.Describe(id); err == nil && m.Has(o) {
				return id, nil
			}
		}
	}
	if len(s.opt.DefaultModels) == 0 {
		return "", errs.UnknownModel("The request names no model and the server has no default: " +
			"name one, or start the server with --default-model")
	}
	return s.opt.DefaultModels[0], nil
}

// known is the id of a model for the metrics, "" for one that is not in the catalog.
func known(m *catalog.Resolved) string {
	if m == nil {
		return ""
	}
	return m.ID
}
