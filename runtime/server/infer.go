package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/task"
)

// call is one inference request before its body is read.
type call struct {
	endpoint string
	kind     dialect.RouteKind
	model    string            // id in the catalog; "" until it is known
	full     *dialect.Prepared // the refusal when every queue is full, which needs no body; else nil
	field    string            // what the client calls its items; "": items
}

// inference does what all inference routes share. It checks what needs no body, reads the body
// within its bounds, watches for the client's departure, applies the time limit and counts
// refusals. f gets the body, writes the answer and counts a success.
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
		c.model, err = f(task.WithHold(ctx, r.Hold), body)
		r.Note.Model = c.model
		switch {
		case err == nil:
		case errors.Is(err, httpd.ErrClientGone):
			s.service.Ended(c.model, c.endpoint, service.Outcome(err, true))
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

// checkHeaders refuses a request that is wrong before its body is read.
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
	if c.full = s.full.answer(s.service.Full(model)); c.full != nil {
		c.model = model
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		start := time.Now()
		req, err := api.DecodeEncode(r.Header("Content-Type"), body, s.opt.Limits)
		if err != nil {
			return "", err
		}
		m, err := s.service.Find(model)
		if err != nil {
			return "", err
		}
		res, err := m.Began(start).Encode(work, req)
		if err != nil {
			return m.Entry().ID, err
		}
		f := s.success(r, &res.Outcome, res.Usage.InputTokens)
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendEncode(dst, to, f, res) })
		s.served(r, "encode", len(res.Items), res.Usage.InputTokens, req.OutputTypes, &res.Outcome)
		return res.ModelID, nil
	})
}

// success sets the headers of every success of the native routes, and returns the format of the
// answer.
func (s *Server) success(r *httpd.Request, o *api.Outcome, tokens int) api.Format {
	h := &r.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, r.Caller(), build.Version, o.Timings.Wire()) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(tokens))
	if o.Revision != "" {
		h.Set("X-SIE-Model-Revision", o.Revision)
	}
	warn(r, o.Ignored)
	return api.ResponseFormat(r.Header("Accept"))
}

// served counts one successful request, and notes it for the log.
func (s *Server) served(r *httpd.Request, endpoint string, items, tokens int, outputs []string, o *api.Outcome) {
	r.Note.Items, r.Note.Tokens, r.Note.Outputs, r.Note.Timings = items, tokens, outputs, o.Timings
	s.service.Served(o.ModelID, endpoint, items, tokens, o.Timings)
}

// refuse answers with err and counts it. c.model is "" unless it is in the catalog.
func (s *Server) refuse(r *httpd.Request, c call, err error) {
	e := errs.As(err)
	s.service.Ended(c.model, c.endpoint, service.Outcome(err, false))
	if e.Status >= 500 && !e.Transient() {
		s.opt.Log.Error("request failed", "endpoint", c.endpoint, "model", c.model, "status", e.Status, "error", e)
	} else {
		s.opt.Log.Debug("request refused", "id", r.ID, "endpoint", c.endpoint, "model", c.model, "status", e.Status, "code", e.Code, "field", field(e))
	}
	r.Fail(c.kind, e)
}

// refuseFull refuses a request because every queue is full. An overloaded server does this
// thousands of times a second, so the answer is prepared and nothing is logged.
func (s *Server) refuseFull(r *httpd.Request, c call) {
	s.service.Ended(c.model, c.endpoint, metrics.QueueFull)
	status, headers, body := c.full.Render(r.Caller(), c.kind)
	r.Answer(status, headers, body)
}
