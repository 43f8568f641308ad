package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// API answers requests of other APIs through a Backend. Its fields do not change after the first
// use.
type API struct {
	Backend  Backend // see For
	Limits   api.Limits
	Defaults []string // ids of the models for requests that name none: the first that fits the task answers

	Precision string // the precision that models run in, for TEI's /info: fp32, bf16, …
	GPU       bool   // for TEI's headers
	MaxQueued int    // the most items that may wait, for TEI's /info
}

// For returns the API over another Backend, for the request that b belongs to.
func (a *API) For(b Backend) *API {
	c := *a
	c.Backend = b
	return &c
}

// Route describes one route of another API, with method POST and a JSON answer.
type Route struct {
	Path     string
	Kind     dialect.RouteKind // how its errors are written
	Span     string            // its name in traces
	Endpoint string            // its name in metrics
	Field    string            // its clients' name for the items of a request

	outputs []string // TEI's: the outputs that the default model should give, the most wanted first
	tei     bool     // its requests name no model
	serve   func(c *call) error
}

// Routes returns all routes except POST /; for that see API.Root.
func Routes() []*Route { return routes }

var (
	embed = &Route{
		Path:     "/embed",
		Kind:     dialect.RouteTEI,
		Span:     "tei_embed",
		Endpoint: "embed",
		Field:    "inputs",
		outputs:  []string{"dense"},
		tei:      true,
		serve:    (*call).teiEmbed,
	}
	embedSparse = &Route{
		Path:     "/embed_sparse",
		Kind:     dialect.RouteTEI,
		Span:     "tei_embed_sparse",
		Endpoint: "embed_sparse",
		Field:    "inputs",
		outputs:  []string{"sparse"},
		tei:      true,
		serve:    (*call).teiSparse,
	}
	teiRerank = &Route{
		Path:     "/rerank",
		Kind:     dialect.RouteTEI,
		Span:     "tei_rerank",
		Endpoint: "rerank",
		Field:    "texts",
		outputs:  []string{"score"},
		tei:      true,
		serve:    (*call).teiRerank,
	}
	predict = &Route{
		Path:     "/predict",
		Kind:     dialect.RouteTEI,
		Span:     "tei_predict",
		Endpoint: "predict",
		Field:    "inputs",
		outputs:  []string{"json", "score"},
		tei:      true,
		serve:    (*call).teiPredict,
	}

	routes = []*Route{
		{Path: "/v1/embeddings", Kind: dialect.RouteOpenAI, Span: "openai_embeddings", Endpoint: "embeddings",
			Field: "input", serve: (*call).embeddings},
		{Path: "/embeddings", Kind: dialect.RouteOpenAI, Span: "openai_embeddings", Endpoint: "embeddings",
			Field: "input", serve: (*call).embeddings},
		{Path: "/v1/rerank", Kind: dialect.RouteRerank, Span: "rerank", Endpoint: "rerank",
			Field: "documents", serve: (*call).rerankV1},
		{Path: "/v2/rerank", Kind: dialect.RouteCohere, Span: "rerank", Endpoint: "rerank",
			Field: "documents", serve: (*call).rerankV2},
		embed, embedSparse,
		{Path: "/embed_all", Kind: dialect.RouteTEI, Span: "tei_embed_all", Endpoint: "embed_all",
			Field: "inputs", outputs: []string{"multivector"}, tei: true, serve: (*call).teiAll},
		teiRerank, predict,
		{Path: "/similarity", Kind: dialect.RouteTEI, Span: "tei_similarity", Endpoint: "similarity",
			Field: "inputs", outputs: []string{"dense"}, tei: true, serve: (*call).teiSimilarity},
		{Path: "/tokenize", Kind: dialect.RouteTEI, Span: "tei_tokenize", Endpoint: "tokenize",
			Field: "inputs", tei: true, serve: (*call).teiTokenize},
		{Path: "/decode", Kind: dialect.RouteTEI, Span: "tei_decode", Endpoint: "decode", Field: "ids",
			tei: true, serve: (*call).teiDecode},
	}
)

// Root returns the route that POST / stands for. As in TEI, the kind of the first default model
// decides.
func (a *API) Root() *Route {
	if len(a.Defaults) > 0 {
		if m, err := a.Backend.Model(a.Defaults[0]); err == nil {
			switch t := teiType(&m); {
			case t.Reranker != nil:
				return teiRerank
			case t.Embedding != nil && t.Embedding.Pooling == "splade":
				return embedSparse
			case t.Classifier != nil:
				return predict
			}
		}
	}
	return embed
}

// Call is one request whose body has not been read.
type Call struct {
	// Named reports that the body names the model. Otherwise Model is the id of the model that will
	// answer, "" if there is none.
	Named bool
	Model string

	api   *API
	route *Route
	model Model // unless Named
	err   error // why no model answers
}

// Begin starts a request and finds its model if the route determines it.
func (a *API) Begin(route *Route) Call {
	c := Call{Named: !route.tei, api: a, route: route}
	if route.tei {
		c.model, c.err = a.defaultModel(route.outputs...)
		c.Model = c.model.ID
	}
	return c
}

// Reply is the result of a request.
type Reply struct {
	Body    api.Answer // in JSON
	Headers []dialect.Header
	Outputs []string // of the model, for the log
	// Outcome has the ModelID as soon as the model is known, also if the request fails.
	api.Outcome
}

// Serve answers a request with a body. Errors are *errs.Error or the cause of the end of w's
// context; with an error the reply holds at most the model's id. Serve passes w to the Backend's
// methods.
func (c Call) Serve(w *admit.Work, contentType string, body []byte) (Reply, error) {
	run := call{API: c.api, work: w, route: c.route, model: c.model, contentType: contentType, body: body}
	run.reply.ModelID = c.model.ID
	err := c.err
	if err == nil {
		err = c.route.serve(&run)
	}
	return run.reply, err
}

// call is one request with its body. It belongs to one goroutine.
type call struct {
	*API
	work        *admit.Work
	route       *Route
	model       Model // for TEI's routes; others get theirs from the body
	contentType string
	body        []byte
	reply       Reply
}

// done fills in the reply of a request that succeeded. Its total time ends now.
func (c *call) done(items, tokens int, t api.Timings, body api.Answer) error {
	t.Total = time.Since(c.work.Began())
	r := &c.reply
	r.Items, r.Tokens, r.Timings, r.Body = items, tokens, t, body
	return nil
}

// via notes on the reply how a native request was answered: by which worker, and how long it was in
// a queue. Of several native requests the one that waited longest counts.
func (c *call) via(o *api.Outcome) {
	r := &c.reply
	if r.Worker == "" || o.QueueWait > r.QueueWait {
		r.Worker, r.BundleHash, r.QueueWait = o.Worker, o.BundleHash, o.QueueWait
	}
	r.Alias = r.Alias || o.Alias
	r.Publish, r.Fetch = max(r.Publish, o.Publish), max(r.Fetch, o.Fetch)
}

// foreignOptions returns the ForeignOptions of a request with the route's name for its items.
func (c *call) foreignOptions(left bool) api.ForeignOptions {
	return api.ForeignOptions{Field: c.route.Field, TruncateLeft: left}
}

// placed returns an error about an item of a native request with the place that the item has in its
// client's request.
func (c *call) placed(err error, place func(item int) string) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Item == nil {
		return err
	}
	own, theirs, out := fmt.Sprintf("%s[%d]", c.route.Field, *e.Item), place(*e.Item), *e
	out.Param = strings.Replace(e.Param, own, theirs, 1)
	out.Message = strings.Replace(e.Message, "'"+own+"'", "'"+theirs+"'", 1)
	return &out
}

// items returns the items of a request for texts or for lists of token ids.
func items(texts []string, tokens [][]int32) []api.Item {
	out := make([]api.Item, len(texts)+len(tokens))
	for i, text := range texts {
		out[i].Text, out[i].HasText = text, true
	}
	extras := make([]api.ItemExtra, len(tokens))
	for i, ids := range tokens {
		extras[i].Tokens = ids
		out[len(texts)+i].Extra = &extras[i]
	}
	return out
}

// vectors returns the dense vectors of an answer.
func vectors(res *api.EncodeResponse) []api.Array {
	out := make([]api.Array, len(res.Items))
	for i := range out {
		out[i] = res.Items[i].Dense.Values
	}
	return out
}

func (m *Model) has(output string) bool { return slices.Contains(m.Outputs, output) }

// defaultModel returns a default model. It takes the first of outputs that any default model gives,
// and the first model that gives it. If none fits it returns the first default model, whose refusal
// then names the problem.
func (a *API) defaultModel(outputs ...string) (Model, error) {
	for _, o := range outputs {
		for _, id := range a.Defaults {
			if m, err := a.Backend.Model(id); err == nil && m.has(o) {
				return m, nil
			}
		}
	}
	if len(a.Defaults) == 0 {
		return Model{}, errs.UnknownModel("The request names no model and the server has no default: " +
			"name one, or start the server with --default-model")
	}
	return a.Backend.Model(a.Defaults[0])
}
