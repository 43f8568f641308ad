package inference

import (
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// foreign answers a request of another API.
func (a *API) foreign(r *httpd.Request, route *compat.Route) {
	c := a.begin(r, route.Endpoint, route.Kind)
	c.field = route.Field
	begun := a.foreignAPI(c.Session).Begin(route)
	switch {
	case begun.Named:
		c.full = c.Refusal("")
	case begun.Model != "":
		c.full = c.Refusal(begun.Model)
	}
	a.serve(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		out, err := begun.Serve(w, r.Header("Content-Type"), body)
		c.model = out.ModelID
		if err != nil {
			return nil, err
		}
		for _, h := range out.Headers {
			r.Response.Header.Set(h.Name, h.Value)
		}
		a.about(r, &out.Outcome)
		r.Note.Outputs = out.Outputs
		r.Reply(api.JSON, out.Body)
		return &out.Outcome, nil
	})
}

// root answers POST /, which stands for one of the other routes.
func (a *API) root(r *httpd.Request, _ string) {
	c := a.begin(r, "tei", dialect.RouteTEI)
	a.foreign(r, a.foreignAPI(c.Session).Root())
}

// teiInfo answers GET /info.
func (a *API) teiInfo(r *httpd.Request, _ string) {
	c := a.begin(r, "info", dialect.RouteTEI)
	info, err := a.foreignAPI(c.Session).TEIInfo()
	if err != nil {
		r.Fail(dialect.RouteTEI, errs.As(err))
		return
	}
	r.SetContentType(api.ContentTypeJSON)
	r.SetBody(api.AppendTEIInfo(nil, info))
}
