package server

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/worker"
)

// teiSparse answers POST /embed_sparse: a SPLADE model's weights by vocabulary id.
func (s *Server) teiSparse(r *httpd.Request, _ string) {
	s.teiOutput(r, "embed_sparse", "sparse", func(res *worker.Result) api.Answer {
		rows := sparseRows(res)
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEISparse(dst, to, rows) }
	})
}

// teiAll answers POST /embed_all: a vector a token. A model that has trained multivectors gives those; one that has only
// pooled vectors is refused, as for /v1/encode.
func (s *Server) teiAll(r *httpd.Request, _ string) {
	s.teiOutput(r, "embed_all", "multivector", func(res *worker.Result) api.Answer {
		rows := tokenRows(res)
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEIAll(dst, to, rows) }
	})
}

// teiOutput answers with one output of a model, which write makes the answer of.
func (s *Server) teiOutput(r *httpd.Request, endpoint, output string, write func(*worker.Result) api.Answer) {
	s.tei(r, endpoint, []string{output}, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEIEmbed(body, s.opt.Limits)
		if err != nil {
			return err
		}
		options, err := teiOptions(&req.TEIOptions)
		if err != nil {
			return err
		}
		res, err := s.worker.Encode(work, &worker.Request{Model: model, Texts: req.Texts, Tokens: req.Tokens, Field: "inputs", Options: options,
			OutputTypes: []string{output}, TruncateLeft: req.Left, ForceFloat32: true})
		if err != nil {
			return err
		}
		res.Timings.Total = time.Since(start)
		s.teiHeaders(r, chars(req.Texts...), res.Tokens, res.Timings)
		r.Reply(api.JSON, write(res))
		s.served(r, model, endpoint, len(req.Texts)+len(req.Tokens), res.Tokens, res.Timings)
		return nil
	})
}

// sparseRows are the sparse rows of a result whose values are float32.
func sparseRows(res *worker.Result) []api.Sparse {
	out := make([]api.Sparse, len(res.Sparse))
	for i, row := range res.Sparse {
		out[i] = api.Sparse{Dims: res.SparseDims, Indices: api.Vector(api.Int32, row.Columns), Values: api.Vector(res.SparseType, row.Values)}
	}
	return out
}

// tokenRows are the matrices of a result whose elements are float32.
func tokenRows(res *worker.Result) []api.Array {
	out := make([]api.Array, len(res.Multi))
	for i, m := range res.Multi {
		out[i] = api.Matrix(res.MultiType, m.Rows, res.TokenDims, m.Data)
	}
	return out
}
