package compat

import "github.com/sie-engine/sie/internal/api"

// embeddings answers POST /v1/embeddings in OpenAI's dialect.
func (c *call) embeddings() error {
	req, err := api.DecodeEmbeddings(c.contentType, c.body, c.Limits)
	if err != nil {
		return err
	}
	m, err := c.Backend.OpenAIModel(req.Model)
	if err != nil {
		return err
	}
	c.reply.ModelID = m.ID
	foreign := c.foreignOptions(false)
	foreign.Dimensions = req.Dimensions
	res, err := c.Backend.Encode(c.work, m, &api.EncodeRequest{
		Items:          items(req.Texts, req.Tokens),
		OutputTypes:    []string{"dense"},
		OutputDType:    "float32",
		ForeignOptions: foreign,
	})
	if err != nil {
		return err
	}
	c.via(&res.Outcome)
	rows, named, coded, tokens := vectors(res), req.Model, req.Base64, res.Usage.InputTokens
	c.reply.Outputs = []string{"dense"}
	return c.done(len(rows), tokens, res.Timings, func(dst []byte, to *api.Sink) []byte {
		return api.AppendEmbeddingsJSON(dst, to, named, rows, coded, tokens)
	})
}
