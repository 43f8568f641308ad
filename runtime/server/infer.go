package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
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
func (s *Server) inference(ctx *fasthttp.RequestCtx, c call,
	f func(work context.Context, body []byte) (model string, err error)) {
	if s.gate.closed() {
		s.unwanted(ctx)
		s.refuse(ctx, c, errs.ShuttingDown())
		return
	}
	if err := s.checkHeaders(ctx); err != nil {
		s.unwanted(ctx)
		s.refuse(ctx, c, err)
		return
	}
	if c.full != nil {
		s.unwanted(ctx)
		s.refuseFull(ctx, c)
		return
	}
	body, err := s.bodies.read(ctx)
	if err != nil {
		if s.gate.closed() { // whatever is wrong with it, it may be that the server did not wait for the rest
			err = errs.ShuttingDown()
		}
		s.refuse(ctx, c, err)
		return
	}
	defer body.release()
	if !s.gate.enter() {
		s.refuse(ctx, c, errs.ShuttingDown())
		return
	}
	defer s.gate.leave()

	own := &visitOf(ctx).answer
	*own = share{bodies: &s.bodies, body: body.reserved, field: cmp.Or(c.field, "items")}
	defer func() {
		if !own.lent {
			own.release()
		}
	}()
	work, cancel := context.WithCancelCause(worker.WithHold(s.work, own.hold))
	defer cancel(nil)
	end, err := s.hangups.watch(ctx.Conn(), func() { cancel(errClientGone) })
	if err == nil {
		defer end()
	}
	work, stop := context.WithTimeoutCause(work, s.opt.RequestTimeout, errs.Late(s.opt.RequestTimeout))
	defer stop()

	c.model, err = f(work, body.Bytes)
	visitOf(ctx).model = c.model
	switch {
	case err == nil:
	case errors.Is(err, errClientGone):
		s.opt.Metrics.Request(c.model, c.endpoint, metrics.Cancelled)
		ctx.SetConnectionClose()
		s.fail(ctx, c.kind, errs.Invalid("", "the client closed its side of the connection before the answer was ready"))
	default:
		s.refuse(ctx, c, err)
	}
}

// unwanted reads away the body of a request for inference that is refused before it. Its sender had good reason to send it,
// and often looks for the answer only afterwards.
func (s *Server) unwanted(ctx *fasthttp.RequestCtx) { s.bodies.drain(ctx, s.bodies.drainFor) }

// checkHeaders refuses what is wrong before the body is looked at.
func (s *Server) checkHeaders(ctx *fasthttp.RequestCtx) error {
	if err := dialect.CheckMachineProfile(header(ctx, "X-SIE-MACHINE-PROFILE"), s.opt.MachineProfile); err != nil {
		return err
	}
	if err := checkEncoding(&ctx.Request.Header); err != nil {
		return err
	}
	remote := ctx.Request.Header.Peek("X-SIE-Remote")
	if err := dialect.CheckRemote(string(remote), remote != nil); err != nil {
		return err
	}
	return nil
}

func header(ctx *fasthttp.RequestCtx, name string) string {
	return string(ctx.Request.Header.Peek(name))
}

// encode answers POST /v1/encode/{model}.
func (s *Server) encode(ctx *fasthttp.RequestCtx, model string) {
	c := call{endpoint: "encode", kind: dialect.RouteEncode}
	if c.full = s.full.answer(s.worker.Full(model)); c.full != nil {
		c.model = model
	}
	s.inference(ctx, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeEncode(header(ctx, "Content-Type"), body, s.opt.Limits)
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
		s.writeEncode(ctx, model, req, res)
		s.observe("encode", res)
		note(ctx, len(req.Items), res.Tokens, req.OutputTypes, res.Timings)
		return res.Model.ID, nil
	})
}

func (s *Server) writeEncode(ctx *fasthttp.RequestCtx, model string, req *api.EncodeRequest, res *worker.Result) {
	timing := res.Timings.Wire()
	out := api.EncodeResponse{Model: model, Items: encodeItems(req, res), Timing: timing, Usage: &api.Usage{InputTokens: res.Tokens}}
	s.setHeaders(ctx, res.Model, timing, res.Tokens)
	warn(ctx, res.Ignored)
	f := api.ResponseFormat(header(ctx, "Accept"))
	s.reply(ctx, f, func(dst []byte, to *api.Sink) []byte { return api.AppendEncode(dst, to, f, &out) })
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
func (s *Server) setHeaders(ctx *fasthttp.RequestCtx, m *catalog.Resolved, timing *api.Timing, tokens int) {
	h := &ctx.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, caller(ctx), build.Version, timing) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(tokens))
	if m.Revision != "" {
		h.Set("X-SIE-Model-Revision", m.Revision)
	}
}

// embeddings answers POST /v1/embeddings in OpenAI's dialect.
func (s *Server) embeddings(ctx *fasthttp.RequestCtx, _ string) {
	c := call{endpoint: "embeddings", kind: dialect.RouteOpenAI, full: s.full.answer(s.worker.AllFull()), field: "input"}
	s.inference(ctx, c, func(work context.Context, body []byte) (string, error) {
		req, err := api.DecodeEmbeddings(header(ctx, "Content-Type"), body, s.opt.Limits)
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
		s.reply(ctx, api.JSON, func(dst []byte, to *api.Sink) []byte {
			return api.AppendEmbeddingsJSON(dst, to, named, vectors, coded, tokens)
		})
		s.observe("embeddings", res)
		note(ctx, len(res.Rows), res.Tokens, []string{"dense"}, res.Timings)
		return m.ID, nil
	})
}

// observe counts one success.
func (s *Server) observe(endpoint string, res *worker.Result) {
	s.opt.Metrics.Request(res.Model.ID, endpoint, metrics.Success)
	s.opt.Metrics.Served(res.Model.ID, endpoint, len(res.Rows), res.Tokens, res.Timings)
}

// refuse answers with err and counts it. c.model is "" unless it is in the catalog.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, c call, err error) {
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
		s.opt.Log.Debug("request refused", "id", visitOf(ctx).id, "endpoint", c.endpoint, "model", c.model, "status", e.Status, "code", e.Code, "field", field(e))
	}
	s.fail(ctx, c.kind, e)
}

// refuseFull is refuse for want of room, which an overloaded server says thousands of times a second: the words are
// prepared and nothing is logged.
func (s *Server) refuseFull(ctx *fasthttp.RequestCtx, c call) {
	s.opt.Metrics.Request(c.model, c.endpoint, metrics.QueueFull)
	status, headers, body := c.full.Render(caller(ctx), c.kind)
	write(ctx, status, headers, body)
}

// fail writes err in the caller's dialect.
func (s *Server) fail(ctx *fasthttp.RequestCtx, kind dialect.RouteKind, err *errs.Error) {
	status, headers, body := dialect.Render(err, caller(ctx), kind)
	write(ctx, status, headers, body)
}

// write answers with body, which must not change any more.
func write(ctx *fasthttp.RequestCtx, status int, headers []dialect.Header, body []byte) {
	ctx.SetStatusCode(status)
	for _, h := range headers {
		ctx.Response.Header.Set(h.Name, h.Value)
	}
	ctx.Response.SetBodyRaw(body)
}

// expect answers a client that asks whether to send its body: not one that would be refused for its size or because the
// server drains.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	var e *errs.Error
	switch _, refused := s.keyed(ctx); {
	case refused != nil:
		e = refused
	case int64(ctx.Request.Header.ContentLength()) > s.bodies.maxOne:
		e = errs.BodyTooLarge(s.bodies.maxOne)
	case s.gate.closed():
		e = errs.ShuttingDown()
	default:
		return fasthttp.StatusContinue
	}
	v := s.arrive(ctx)
	s.fail(ctx, dialect.RouteNative, e)
	s.depart(ctx, v)
	return e.Status
}

// badHead answers requests whose head, or first bytes of the body, could not be read.
func (s *Server) badHead(ctx *fasthttp.RequestCtx, err error) {
	e := errs.Invalid("headers", "the request's head is not valid HTTP/1.1")
	var small *fasthttp.ErrSmallBuffer
	var ne net.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		e = errs.Invalid("", "the connection was closed before the whole request had arrived")
	case errors.As(err, &small):
		e = errs.Invalidf("headers", "the request's head is larger than %d bytes", s.opt.MaxHeadBytes)
		e.Status = fasthttp.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &ne) && ne.Timeout() && s.gate.closed():
		e = errs.ShuttingDown()
	case errors.As(err, &ne) && ne.Timeout():
		e = errs.Invalidf("headers", "the request's head did not arrive within %v, or the first byte of its body within %v of it",
			s.http.ReadTimeout, s.bodies.stall)
		e.Status = fasthttp.StatusRequestTimeout
	}
	ctx.SetConnectionClose()
	v := s.arrive(ctx)
	s.fail(ctx, dialect.RouteNative, e)
	s.depart(ctx, v)
}
