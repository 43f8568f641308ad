package inference

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

// encode answers POST /v1/encode/{model}.
func (a *API) encode(r *httpd.Request, id string) {
	c := a.begin(r, "encode", dialect.RouteEncode)
	m, missing := c.find(id)
	a.serve(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeEncode(r.Header("Content-Type"), body, a.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.model = m.ID
		res, err := c.Encode(w, m, req)
		if err != nil {
			return nil, err
		}
		f := a.success(r, &res.Outcome)
		r.Note.Outputs = req.OutputTypes
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendEncode(dst, to, f, res) })
		return &res.Outcome, nil
	})
}

// score answers POST /v1/score/{model}. It checks in the reference's order: body, model, task,
// texts.
func (a *API) score(r *httpd.Request, id string) {
	c := a.begin(r, "score", dialect.RouteScore)
	m, missing := c.find(id)
	if missing == nil && !slices.Contains(m.Outputs, "score") {
		c.full, c.model = nil, "" // refused for that, and not for its queues
	}
	a.serve(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeScore(r.Header("Content-Type"), body, a.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.model = m.ID
		res, err := c.Score(w, m, req)
		if err != nil {
			return nil, err
		}
		f := a.success(r, &res.Outcome)
		r.Response.Header.Set("X-SIE-Units-Content-Input-Tokens", strconv.Itoa(res.Usage.ContentTokens))
		r.Response.Header.Set("X-SIE-Units-Pairs", strconv.Itoa(len(res.Scores)))
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendScore(dst, to, f, res) })
		return &res.Outcome, nil
	})
}

// extract answers POST /v1/extract/{model}.
func (a *API) extract(r *httpd.Request, id string) {
	c := a.begin(r, "extract", dialect.RouteExtract)
	m, missing := c.find(id)
	a.serve(r, &c, func(w *admit.Work, body []byte) (*api.Outcome, error) {
		req, err := api.DecodeExtract(r.Header("Content-Type"), body, a.opt.Limits)
		if err = cmp.Or(err, missing); err != nil {
			return nil, err
		}
		c.model = m.ID
		res, err := c.Extract(w, m, req)
		if err == nil {
			err = firstItemError(r.Caller(), res)
		}
		if err != nil {
			return nil, err
		}
		f := a.success(r, &res.Outcome)
		r.Reply(f, func(dst []byte, to *api.Sink) []byte { return api.AppendExtract(dst, to, f, res) })
		return &res.Outcome, nil
	})
}

// firstItemError returns the first item's error if the client does not read item errors. Such a
// client would take a failed item for one in which nothing was found. An error that came through a
// queue has code and message alone, so the item is named here.
func firstItemError(c dialect.Caller, res *api.ExtractResponse) error {
	for i := range res.Items {
		if err := res.Items[i].Error; err != nil && !c.ReadsItemErrors() {
			if err.Param == "" {
				named := *err
				named.Param = "items[" + strconv.Itoa(i) + "]"
				return &named
			}
			return err
		}
	}
	return nil
}

// listModels answers GET /v1/models.
func (a *API) listModels(r *httpd.Request, _ string) {
	r.SetContentType("application/json")
	list := a.opt.Backend.Models()
	if t := r.Tenant(); t != nil {
		list = slices.DeleteFunc(slices.Clone(list),
			func(m api.ModelInfo) bool { return !t.MayUseModel(m.Name) })
	}
	r.SetBody(api.AppendModelsJSON(nil, list))
}

// getModel answers GET /v1/models/{model}.
func (a *API) getModel(r *httpd.Request, id string) {
	c := a.begin(r, "models", dialect.RouteNative)
	info, err := c.Info(id)
	if err != nil {
		a.refuse(r, &c, err)
		return
	}
	r.SetContentType("application/json")
	r.SetBody(api.AppendModelJSON(nil, info))
}
