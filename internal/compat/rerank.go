package compat

import (
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// rerankV1 answers POST /v1/rerank for SIE, Cohere v1 and Jina clients. The fields of a request
// tell the clients apart; the answer has the fields of all of them.
func (c *call) rerankV1() error { return c.rerank(1) }

// rerankV2 answers POST /v2/rerank for Cohere v2 clients.
func (c *call) rerankV2() error { return c.rerank(2) }

func (c *call) rerank(version int) error {
	req, err := api.DecodeRerank(c.body, c.Limits)
	if err != nil {
		return err
	}
	id, m, err := c.scorer(req.Model)
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
	res, err := c.Backend.Score(c.work, m, &api.ScoreRequest{
		Query:          api.Item{Text: req.Query, HasText: true},
		Items:          items(texts, nil),
		Options:        req.Options,
		ForeignOptions: c.foreignOptions(false),
	})
	if err != nil {
		return err
	}
	c.via(&res.Outcome)
	best := res.Scores
	if req.TopN > 0 && req.TopN < len(best) {
		best = best[:req.TopN]
	}
	tokens := res.Usage.InputTokens
	out := api.RerankResponse{
		ID:         api.NewID(),
		Model:      id,
		APIVersion: version,
		Tokens:     tokens,
		Results:    make([]api.RerankResult, len(best)),
	}
	for rank, s := range best {
		out.Results[rank] = api.RerankResult{Index: s.Index, Score: s.Score}
		if req.ReturnDocuments {
			out.Results[rank].Document = &req.Documents[s.Index]
		}
	}
	c.reply.Ignored = res.Ignored
	return c.done(len(res.Scores), tokens, res.Timings,
		func(dst []byte, to *api.Sink) []byte { return api.AppendRerankJSON(dst, to, &out) })
}

// scorer returns the model that a request names, or the default one, and what the request calls it.
// It returns an error if the model does not score; a model that was found is returned also then.
func (c *call) scorer(named string) (id string, m Model, err error) {
	if named == "" {
		m, err = c.defaultModel("score")
		named = m.ID
	} else {
		m, err = c.Backend.OpenAIModel(named)
	}
	if err == nil && !m.has("score") {
		err = errs.NoScoring(named)
	}
	return named, m, err
}

// cutTexts cuts each text, in place, after its first tokens tokens.
func (c *call) cutTexts(m Model, texts []string, tokens int) error {
	read, err := c.Backend.Tokenize(c.work, m, texts, false)
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
