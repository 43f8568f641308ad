package compat

import (
	"maps"

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

// teiOutput answers a request for one output of a model; write turns the result into the answer.
func (c *call) teiOutput(output string, write func(*api.EncodeResponse) api.Answer) error {
	req, err := api.DecodeTEIEmbed(c.body, c.Limits)
	if err != nil {
		return err
	}
	return c.teiEncode(output, &api.EncodeRequest{Items: items(req.Texts, req.Tokens)},
		&req.TEIOptions, write)
}

// teiEncode runs q, to which it adds the output, the options of o and the route's wishes. write
// turns the result into the answer.
func (c *call) teiEncode(
	output string, q *api.EncodeRequest, o *api.TEIOptions, write func(*api.EncodeResponse) api.Answer,
) error {
	options := teiOptions(o)
	maps.Copy(options, q.Options)
	q.Options, q.OutputTypes, q.OutputDType, q.Field, q.TruncateLeft = options, []string{
		output,
	}, "float32", c.route.Field, o.Left
	res, err := c.Backend.Encode(c.work, c.model, q)
	if err != nil {
		return err
	}
	c.via(&res.Outcome)
	characters := 0
	for i := range q.Items {
		characters += chars(q.Items[i].Text)
	}
	return c.teiDone(characters, len(res.Items), res.Usage.InputTokens, res.Timings, write(res))
}
