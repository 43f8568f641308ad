package compat

import (
	"time"

	"github.com/sie-engine/sie/internal/api"
)

// rerankV1 answers POST /v1/rerank for SIE, Cohere v1 and Jina clients. The fields of a request
// tell the clients apart; the answer has the fields of all of them.
func (c *call) rerankV1() error { return c.rerank(1) }

// rerankV2 answers POST /v2/rerank for Cohere v2 clients.
func (c *call) rerankV2() error { return c.rerank(2) }

func (c *call) rerank(version int) error {
	start := time.Now()
	req, err := api.DecodeRerank(c.body, c.Limits)
	if err != nil {
		return err
	}
	id := req.Model
	if id == "" {
		if id, err = c.defaultModel("score"); err != nil {
			return err
		}
	}
	m, err := scorer(id, c.Backend.OpenAIModel)
	c.reply.ModelID = m.ID
	if err != nil {
		return err
	}
	texts := make([]string, len(req.Documents))
	for i := range req.Documents {
		texts[i] = req.Documents[i].Text
	}
	if req.NoTruncation {
		req.Options = withOption(req.Options, "overflow_policy", "error")
	}
	if req.MaxTokensPerDoc > 0 {
		if err := c.cutTexts(m, texts, req.MaxTokensPerDoc); err != nil {
			return err
		}
	}
	res, err := c.Backend.Score(c.ctx, m, &api.ScoreRequest{Query: api.Item{Text: req.Query, HasText: true}, Items: items(texts, nil),
		Options: req.Options, Wishes: c.wishes(false)})
	if err != nil {
		return err
	}
	best := res.Scores
	if req.TopN > 0 && req.TopN < len(best) {
		best = best[:req.TopN]
	}
	tokens := res.Usage.InputTokens
	out := api.RerankResponse{ID: api.NewID(), Model: id, APIVersion: version, Tokens: tokens, Results: make([]api.RerankResult, len(best))}
	for rank, s := range best {
		out.Results[rank] = api.RerankResult{Index: s.Index, Score: s.Score}
		if req.ReturnDocuments {
			out.Results[rank].Document = &req.Documents[s.Index]
		}
	}
	res.Timings.Total = time.Since(start)
	c.reply.Ignored = res.Ignored
	return c.done(len(res.Scores), tokens, res.Timings, func(dst []byte, to *api.Sink) []byte { return api.AppendRerankJSON(dst, to, &out) })
}

// cutTexts cuts each text, in place, after its first tokens tokens.
func (c *call) cutTexts(m Model, texts []string, tokens int) error {
	read, err := c.Backend.Tokenize(c.ctx, m, texts, false)
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

// withOption adds an option unless the request sets it.
func withOption(options api.Options, key string, value any) api.Options {
	if options == nil {
		options = make(api.Options, 1)
	}
	if _, given := options[key]; !given {
		options[key] = value
	}
	return options
}
