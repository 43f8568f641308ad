package server

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/service"
)

// call is one inference request and its count.
type call struct {
	service.Call
	kind  dialect.RouteKind
	full  *refusal // when every queue is full, which needs no body; else nil
	field string   // what the client calls its items; "": items
}

// inference does what all inference routes share. It checks what needs no body, reads the body
// within its bounds, has the request admitted, and counts it. f gets the body and writes the
// answer; it sets c.Model as soon as the model is known.
func (s *Server) inference(
	r *httpd.Request, c *call, f func(w *admit.Work, body []byte) (*api.Outcome, error),
) {
	err := s.service.Gate().Open()
	if err == nil {
		err = s.checkHeaders(r)
	}
	switch {
	case err != nil:
		r.Unwanted()
		s.refuse(r, c, err)
		return
	case c.full != nil:
		r.Unwanted()
		s.refuseFull(r, c)
		return
	}
	err = r.Do(c.field, func(w *admit.Work, body []byte) {
		out, err := f(w, body)
		r.Note.Model = c.Model
		switch {
		case err == nil:
			r.Note.Items, r.Note.Tokens, r.Note.Timings = out.Items, out.Tokens, out.Timings
			c.End(out, nil)
		case errors.Is(err, admit.ErrClientGone):
			c.End(nil, err)
			r.SetConnectionClose()
			r.Fail(c.kind,
				errs.Invalid("", "the client closed its side of the connection before the answer was ready"))
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
	if err := dialect.CheckMachineProfile(r.Header("X-SIE-MACHINE-PROFILE"),
		s.opt.MachineProfile); err != nil {
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
func (s *Server) encode(r *httpd.Request, id string) {
	c := call{Call: s.service.Call("encode"), kind: dialect.RouteEncode}
	m, missing := s.find(&c, id)
	s.inference(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeEncode(r.Header("Content-Type"), body, s.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.Model = m.Entry().ID
		res, err := m.Encode(w, req)
		if err != nil {
			return nil, err
		}
		f := s.success(r, &res.Outcome)
		r.Note.Outputs = req.OutputTypes
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendEncode(dst, to, f, res) })
		return &res.Outcome, nil
	})
}

// find returns the model of a request. If all its queues are full, it notes the refusal. A model
// that is missing is an error only once the body was read, because errors in the body come first.
func (s *Server) find(c *call, id string) (service.Model, error) {
	m, err := s.service.Find(id)
	if err == nil {
		if c.full = s.full.refusal(m.Room()); c.full != nil {
			c.Model = m.Entry().ID
		}
	}
	return m, err
}

// success sets the headers of every success of the native routes, and returns the format of the
// answer.
func (s *Server) success(r *httpd.Request, o *api.Outcome) api.Format {
	h := &r.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, r.Caller(), build.Version, o.Timings.Wire()) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(o.Tokens))
	if o.Revision != "" {
		h.Set("X-SIE-Model-Revision", o.Revision)
	}
	warn(r, o.Ignored)
	return api.ResponseFormat(r.Header("Accept"))
}

// refuse answers with err and counts it.
func (s *Server) refuse(r *httpd.Request, c *call, err error) {
	e := errs.As(err)
	c.End(nil, err)
	if e.Status >= 500 && !e.Transient() {
		s.opt.Log.Error("request failed", "endpoint", c.Endpoint(), "model", c.Model,
			"status", e.Status, "error", e)
	} else {
		s.opt.Log.Debug("request refused", "id", r.ID, "endpoint", c.Endpoint(), "model", c.Model,
			"status", e.Status, "code", e.Code, "field", field(e))
	}
	r.Fail(c.kind, e)
}

// refuseFull refuses a request because every queue is full. An overloaded server does this
// thousands of times a second, so the answer is prepared and nothing is logged.
func (s *Server) refuseFull(r *httpd.Request, c *call) {
	c.End(nil, c.full.err)
	status, headers, body := c.full.answer.Render(r.Caller(), c.kind)
	r.Answer(status, headers, body)
}
