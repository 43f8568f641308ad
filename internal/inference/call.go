package inference

import (
	"errors"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/httpd"
)

// call is one inference request.
type call struct {
	Session
	endpoint string
	kind     dialect.RouteKind
	model    string   // its id in the catalog, "" until it is known
	full     *Refusal // set if nothing can begin now, which needs no body
	field    string   // what the client calls its items; "": items
}

// begin begins a request.
func (a *API) begin(r *httpd.Request, endpoint string, kind dialect.RouteKind) call {
	h := Head{
		Endpoint:       endpoint,
		RequestID:      r.ID,
		MachineProfile: r.Header("X-SIE-MACHINE-PROFILE"),
		Pool:           r.Header("X-SIE-Pool"),
		Priority:       r.Header("X-SIE-Priority"),
		Hold:           r.Header("X-SIE-Hold"),
		Tenant:         r.Tenant(),
		Caller:         r.Caller(),
	}
	h.TraceParent, h.TraceState = r.Trace()
	return call{Session: within(a.opt.Backend.Begin(h), h.Tenant), endpoint: endpoint, kind: kind}
}

// find returns the model of a native request. If nothing for it can begin now, it notes the
// refusal. A model that is missing is an error only once the body was read, because errors in the
// body come first.
func (c *call) find(id string) (compat.Model, error) {
	m, err := c.Model(id)
	if err == nil {
		if c.full = c.Refusal(m.ID); c.full != nil {
			c.model = m.ID
		}
	}
	return m, err
}

// serve does what all inference routes share. It checks what needs no body, reads the body within
// its bounds, has the request admitted, and counts it. f gets the body and writes the answer; it
// sets c.model as soon as the model is known.
func (a *API) serve(
	r *httpd.Request, c *call, f func(w *admit.Work, body []byte) (*api.Outcome, error),
) {
	err := a.opt.Gate.Open()
	if err == nil {
		err = checkHead(r, c)
	}
	switch {
	case err != nil:
		r.Unwanted()
		a.refuse(r, c, err)
		return
	case c.full != nil:
		r.Unwanted()
		refuseFull(r, c)
		return
	}
	err = r.Do(c.field, func(w *admit.Work, body []byte) {
		out, err := f(w, body)
		r.Note.Model = c.model
		switch {
		case err == nil:
			r.Note.Items, r.Note.Tokens, r.Note.Timings = out.Items, out.Tokens, out.Timings
			r.Note.Pool, r.Note.Profile, r.Note.Worker = out.Pool, out.Profile, out.Worker
			r.Note.Operation = c.endpoint
			c.End(c.model, out, nil)
		case errors.Is(err, admit.ErrClientGone):
			c.End(c.model, nil, err)
			r.SetConnectionClose()
			r.Fail(c.kind,
				errs.Invalid("", "the client closed its side of the connection before the answer was ready"))
		default:
			a.refuse(r, c, err)
		}
	})
	if err != nil {
		a.refuse(r, c, err)
	}
}

// checkHead refuses a request that is wrong before its body is read.
func checkHead(r *httpd.Request, c *call) error {
	if err := c.Check(); err != nil {
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

// success sets the headers of every success of the native routes, and returns the format of the
// answer.
func (a *API) success(r *httpd.Request, o *api.Outcome) api.Format {
	h := &r.Response.Header
	for _, x := range dialect.SuccessHeaders(nil, r.Caller(), build.Version, o.Timings.Wire()) {
		h.Set(x.Name, x.Value)
	}
	h.Set("X-SIE-Build", build.Version+"+"+build.Commit)
	h.Set("X-SIE-Units-Input-Tokens", strconv.Itoa(o.Tokens))
	if o.Revision != "" {
		h.Set("X-SIE-Model-Revision", o.Revision)
	}
	a.about(r, o)
	return api.ResponseFormat(r.Header("Accept"))
}

// about sets the headers that all successes have, also those of other APIs.
func (a *API) about(r *httpd.Request, o *api.Outcome) {
	if a.opt.Headers != nil {
		for _, x := range a.opt.Headers(nil, o) {
			r.Response.Header.Set(x.Name, x.Value)
		}
	}
	warn(r, o.Ignored)
}

// refuse answers with err and counts it.
func (a *API) refuse(r *httpd.Request, c *call, err error) {
	e := errs.As(err)
	c.End(c.model, nil, err)
	if e.Status >= 500 && !e.Transient() {
		a.opt.Log.Error("request failed", "id", r.ID, "endpoint", c.endpoint, "model", c.model,
			"status", e.Status, "error", e)
	} else {
		a.opt.Log.Debug("request refused", "id", r.ID, "endpoint", c.endpoint, "model", c.model,
			"status", e.Status, "code", e.Code, "field", field(e))
	}
	r.Fail(c.kind, e)
}

// refuseFull refuses a request because nothing can begin now. An overloaded server does this
// thousands of times a second, so the answer is prepared and nothing is logged.
func refuseFull(r *httpd.Request, c *call) {
	c.End(c.model, nil, c.full.Err)
	status, headers, body := c.full.answer.Render(r.Caller(), c.kind)
	r.Answer(status, headers, body)
}

// field returns the request field that an error names. It leaves out what clients choose: option
// keys and places in lists.
func field(e *errs.Error) string {
	name := e.Param
	if i := strings.IndexAny(name, ".["); i >= 0 {
		name = name[:i]
	}
	return files.Clip(name, 32)
}
