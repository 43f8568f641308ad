package compat

import (
	"time"

	"github.com/sie-engine/sie/internal/api"
)

// teiSparse answers POST /embed_sparse: a SPLADE model's weights by vocabulary id.
func (c *call) teiSparse() error {
	return c.teiOutput("sparse", func(res *api.EncodeResponse) api.Answer {
		rows := make([]api.Sparse, len(res.Items))
		for i := range rows {
			rows[i] = *res.Items[i].Sparse
		}
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEISparse(dst, to, rows) }
	})
}

// teiAll answers POST /embed_all: one vector per token. A model with trained multivectors gives
// those; a model that has only pooled vectors is refused, as on /v1/encode.
func (c *call) teiAll() error {
	return c.teiOutput("multivector", func(res *api.EncodeResponse) api.Answer {
		rows := make([]api.Array, len(res.Items))
		for i := range rows {
			rows[i] = res.Items[i].Multivector.Values
		}
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEIAll(dst, to, rows) }
	})
}

// teiOutput answers with one output of a model; write turns the result into the answer.
func (c *call) teiOutput(output string, write func(*api.EncodeResponse) api.Answer) error {
	start := time.Now()
	req, err := api.DecodeTEIEmbed(c.body, c.Limits)
	if err != nil {
		return err
	}
	options, err := teiOptions(&req.TEIOptions)
	if err != nil {
		return err
	}
	res, err := c.Backend.Encode(c.ctx, c.model, &api.EncodeRequest{Items: items(req.Texts, req.Tokens), Options: options,
		OutputTypes: []string{output}, OutputDType: "float32", Wishes: c.wishes(req.Left)})
	if err != nil {
		return err
	}
	res.Timings.Total = time.Since(start)
	c.teiHeaders(chars(req.Texts...), res.Usage.InputTokens, &res.Timings)
	return c.done(len(res.Items), res.Usage.InputTokens, res.Timings, write(res))
}
