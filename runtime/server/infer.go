package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/worker"
)

// call is one inference request before its body is read.
type call struct {
	endpoint string
	kind     dialect.RouteKind
	model    string            // where the path names one that is in the catalog
	full     *dialect.Prepared // the answer where there is no room for it, whatever its body says
	field    string            // what its items are called; "": items
}

// inference wraps what every inference route shares: the checks that come before the body, the body within its bounds,
// the client's presence, the time limit, and the count of the outcome. f gets the body and writes the answer.
func (s *Server) inference(r *httpd.Request, c call,
	f func(work context.Context, body []byte) (model string, err error)) {
	if s.http.Draining() {
		r.Unwanted()
		s.refuse(r, c, errs.ShuttingDown())
		return
	}
	if err := s.checkHeaders(r); err != nil {
		r.Unwanted()
		s.refuse(r, c, err)
		return
	}
	if c.full != nil {
		r.Unwanted()
		s.refuseFull(r, c)
		return
	}
	err := r.Do(c.field, func(ctx context.Context, body []byte) {
		var err error
		c.model, err = f(worker.WithHold(ctx, r.Hold), body)
		r.Note.Model = c.model
		switch {
		case err == nil:
		case errors.Is(err, httpd.ErrClientGone):
			s.opt.Metrics.Request(c.model, c.endpoint, metrics.Cancelled)
			r.SetConnectionClose()
			r.Fail(c.kind, errs.Invalid("", "the client closed its side of the connection before the answer was ready"))
		default:
			s.refuse(r, c, err)
		}
	})
	if err != nil {
		s.refuse(r, c, err)
	}
}

// checkHeaders refuses what is wrong before the body is looked at.
func (s *Server) checkHeaders(r *httpd.Request) error {
	if err := dialect.CheckMachineProfile(r.Header("X-SIE-MACHINE-PROFILE"), s.opt.MachineProfile); err != nil {
		return err
	}
	if err := r.CheckEncoding(); err != nil {
		return err
	}
	remote := r.Request.Header.Peek("X-SIE-Remote")
	if err := dialect.CheckRemote(string(remote), remote != nil); err != nil {
		return err
	}
	return nil
}

// encode answers POST /v1/encode/{model}.
func (s *Server) encode(r *httpd.Request, model string) {
	c := call{endpoint: "encode", kind: dialect.RouteEncode}
	if c.full = s.full.answer(s.worker.Full(model)); c.full != nil {
		c.model = model
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeEncode(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		wr := &worker.Request{Model: model, Texts: make([]string, len(req.Items)), Options: req.Options,
			OutputTypes: req.OutputTypes, OutputDType: req.OutputDType, Instruction: req.Instruction, IsQuery: req.IsQuery}
		adapter, err := s.worker.Describe(model)
		if err != nil {
			return "", err
		}
		for i := range req.Items {
			it := &req.Items[i]
			if !it.HasText {
				return adapter.ID, errs.RequiresText(adapter.Adapter.Class, i)
			}
			wr.Texts[i] = it.Text
		}
		res, err := s.worker.Encode(work, wr)
		if err != nil {
			return adapter.ID, err
		}
		res.Timings.Preprocess += time.Since(start) - res.Timings.Total
		res.Timings.Total = time.Since(start)
		s.writeEncode(r, model, req, res)
		s.observe("encode", res)
		note(r, len(req.Items), res.Tokens, req.OutputTypes, res.Timings)
		return res.Model.ID, nil
	})
}

func (s *Server) writeEncode(r *httpd.Request, model string, req *api.EncodeRequest, res *worker.Result) {
	timing := res.Timings.Wire()
	out := api.EncodeResponse{Model: model, Items: encodeItems(req, res), Timing: timing, Usage: &api.Usage{InputTokens: res.Tokens}}
	s.setHeaders(r, res.Model, timing, res.Tokens)
	warn(r, res.Ignored)
	f := api.ResponseFormat(r.Header("Accept"))
	r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendEncode(dst, to, f, &out) })
}

// encodeItems puts each text's outputs under its id.
func encodeItems(req *api.EncodeRequest, res *worker.Result) []api.EncodeItem {
	items := make([]api.EncodeItem, len(req.Items))
	for i := range items {
		it := &items[i]
		it.ID, it.HasID = req.Items[i].ID, req.Items[i].HasID
		if res.Rows != nil {
			it.Dense = &api.Dense{Dims: res.Dims, Values: api.Vector(res.Type, res.Rows[i])}
		}
		if res.Sparse != nil {
			row := res.Sparse[i]
			it.Sparse = &api.Sparse{Dims: res.SparseDims, Indices: api.Vector(api.Int32, row.Columns), Values: api.Vector(res.SparseType, row.Values)}
		}
		if res.Multi != nil {
			m := res.Multi[i]
			cols := res.TokenDims
			if m.Rows > 0 {
				cols = len(m.Data) / m.Rows / res.MultiType.Size()
			}
			it.Multivector = &api.Multivector{TokenDims: res.TokenDims, Values: api.Matrix(res.MultiType, m.Rows, cols, m.Data)}
		}
	}
	return items
}

// setHeaders sets what every success of the native routes has.
func (s *Server) setHeaders(r *httpd.Request, m *catalog.Resolved, timing *api.Timing, tokens int) {
	h := &r.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, r.Caller(), build.Version, timing) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(tokens))
	if m.Revision != "" {
		h.Set("X-SIE-Model-Revision", m.Revision)
	}
}

// embeddings answers POST /v1/embeddings in OpenAI's dialect.
func (s *Server) embeddings(r *httpd.Request, _ string) {
	c := call{endpoint: "embeddings", kind: dialect.RouteOpenAI, full: s.full.answer(s.worker.AllFull()), field: "input"}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		req, err := api.DecodeEmbeddings(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.worker.DescribeOpenAI(req.Model)
		if err != nil {
			return "", err
		}
		res, err := s.worker.Encode(work, &worker.Request{Model: m.ID, Texts: req.Texts, Tokens: req.Tokens, Field: "input",
			OutputTypes: []string{"dense"}, Dimensions: req.Dimensions, ForceFloat32: true})
		if err != nil {
			return m.ID, err
		}
		vectors := make([]api.Array, len(res.Rows))
		for i, row := range res.Rows {
			vectors[i] = api.Vector(res.Type, row)
		}
		named, coded, tokens := req.Model, req.Base64, res.Tokens
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte {
			return api.AppendEmbeddingsJSON(dst, to, named, vectors, coded, tokens)
		})
		s.observe("embeddings", res)
		note(r, len(res.Rows), res.Tokens, []string{"dense"}, res.Timings)
		return m.ID, nil
	})
}

// observe counts one success.
func (s *Server) observe(endpoint string, res *worker.Result) {
	s.opt.Metrics.Request(res.Model.ID, endpoint, metrics.Success)
	s.opt.Metrics.Served(res.Model.ID, endpoint, len(res.Rows), res.Tokens, res.Timings)
}

// refuse answers with err and counts it. c.model is "" unless it is in the catalog.
func (s *Server) refuse(r *httpd.Request, c call, err error) {
	e := errs.As(err)
	outcome := metrics.Error
	switch {
	case e.Code == errs.QueueFull:
		outcome = metrics.QueueFull
	case e.Status < 500:
		outcome = metrics.Rejected
	}
	s.opt.Metrics.Request(c.model, c.endpoint, outcome)
	if e.Status >= 500 && !e.Transient() {
		s.opt.Log.Error("request failed", "endpoint", c.endpoint, "model", c.model, "status", e.Status, "error", e)
	} else {
		s.opt.Log.Debug("request refused", "id", r.ID, "endpoint", c.endpoint, "model", c.model, "status", e.Status, "code", e.Code, "field", field(e))
	}
	r.Fail(c.kind, e)
}

// refuseFull is refuse for want of room, which an overloaded server says thousands of times a second: the words are
// prepared and nothing is logged.
func (s *Server) refuseFull(r *httpd.Request, c call) {
	s.opt.Metrics.Request(c.model, c.endpoint, metrics.QueueFull)
	status, headers, body := c.full.Render(r.Caller(), c.kind)
	r.Answer(status, headers, body)
}
