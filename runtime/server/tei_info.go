package server

import (
	"runtime"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// teiInfo answers GET /info about the default model, the one that POST / uses. It loads nothing.
func (s *Server) teiInfo(r *httpd.Request, _ string) {
	model, err := s.defaultModel()
	var m *catalog.Resolved
	if err == nil {
		m, err = s.worker.Describe(model)
	}
	if err != nil {
		r.Fail(dialect.RouteTEI, errs.As(err))
		return
	}
	info := api.TEIInfo{ModelID: m.ID, ServedModelName: m.ID, ModelDType: dtypeName(s.worker.Precision()), ModelType: teiType(m),
		MaxConcurrentRequests: s.worker.QueueLimit(), MaxBatchTokens: m.MaxBatchTokens,
		MaxClientBatchSize: s.opt.Limits.MaxItems, AutoTruncate: true, TokenizationWorkers: runtime.GOMAXPROCS(0), Version: build.Version}
	if listed, err := s.worker.Model(m.ID); err == nil && listed.MaxSequenceLength != nil {
		info.MaxInputLength = *listed.MaxSequenceLength
	}
	if info.MaxClientBatchSize == 0 { // no limit of its own: as many as the smallest items that a body can hold
		info.MaxClientBatchSize = max(s.opt.Limits.BodyLimit(), 1)
	}
	if m.HFID != "" {
		info.ModelID = m.HFID
	}
	if m.Revision != "" {
		info.ModelSHA = &m.Revision
	}
	if commit := build.Commit; commit != "" && commit != "unknown" {
		info.SHA = &commit
	}
	r.SetContentType(api.ContentTypeJSON)
	r.SetBody(api.AppendTEIInfo(nil, &info))
}

// teiType is what kind of model m is to TEI's clients. A head's labels are in its weights, which may not be there yet.
func teiType(m *catalog.Resolved) api.TEIModelType {
	switch {
	case m.Has("sparse") && !m.Has("dense"):
		return api.TEIModelType{Embedding: &api.TEIEmbedding{Pooling: "splade"}}
	case m.Has("dense") || m.Has("multivector"):
		pooling := "mean"
		if m.Runtime != nil && m.Runtime.Pooling != "" {
			pooling = string(m.Runtime.Pooling)
		}
		return api.TEIModelType{Embedding: &api.TEIEmbedding{Pooling: pooling}}
	case m.Has("score"):
		return api.TEIModelType{Reranker: &api.TEIClassifier{ID2Label: map[string]string{"0": "LABEL_0"}, Label2ID: map[string]int{"LABEL_0": 0}}}
	}
	return api.TEIModelType{Classifier: &api.TEIClassifier{ID2Label: map[string]string{}, Label2ID: map[string]int{}}}
}

// dtypeName is a precision in TEI's words.
func dtypeName(precision string) string {
	if name, ok := map[string]string{"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[precision]; ok {
		return name
	}
	return precision
}

// teiHealth answers GET /health: 200, or TEI's 503. The body is for people and for SIE clients, which look for a gateway.
func (s *Server) teiHealth(r *httpd.Request, _ string) {
	r.SetContentType(api.ContentTypeJSON)
	if !s.isReady() {
		r.SetStatusCode(fasthttp.StatusServiceUnavailable)
		r.SetBodyString(`{"error":"unhealthy","error_type":"Unhealthy"}`)
		return
	}
	r.SetBodyString(`{"type":"worker","status":"ok"}`)
}

// teiRoot answers POST / as TEI does: what the default model is for. InferenceClient(base_url) posts there.
func (s *Server) teiRoot(r *httpd.Request, _ string) {
	if len(s.opt.DefaultModels) > 0 {
		if m, err := s.worker.Describe(s.opt.DefaultModels[0]); err == nil {
			switch t := teiType(m); {
			case t.Reranker != nil:
				s.teiRerank(r, "")
				return
			case t.Embedding != nil && t.Embedding.Pooling == "splade":
				s.teiSparse(r, "")
				return
			case t.Classifier != nil:
				s.teiPredict(r, "")
				return
			}
		}
	}
	s.teiEmbed(r, "")
}
