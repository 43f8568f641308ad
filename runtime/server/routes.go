package server

import (
	"strings"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// routes returns the table of routes. A model id is the rest of a path. Open routes need no API key: health and metrics are
// read by machines that have none. /metrics names the models in use and counts their requests and tokens; it says nothing of
// texts, keys or clients. The pages are the same for everybody, and ask for a key themselves.
func (s *Server) routes() []httpd.Route {
	return []httpd.Route{
		{Method: "POST", Path: "/v1/encode/", Serve: s.encode, Kind: dialect.RouteEncode, Span: "encode"},
		{Method: "POST", Path: "/v1/score/", Serve: s.score, Kind: dialect.RouteScore, Span: "score"},
		{Method: "POST", Path: "/v1/extract/", Serve: s.extract, Kind: dialect.RouteExtract, Span: "extract"},
		{Method: "POST", Path: "/v1/embeddings", Serve: s.embeddings, Kind: dialect.RouteOpenAI, Span: "openai_embeddings"},
		{Method: "POST", Path: "/embeddings", Serve: s.embeddings, Kind: dialect.RouteOpenAI, Span: "openai_embeddings"},
		{Method: "POST", Path: "/v1/rerank", Serve: s.rerank, Kind: dialect.RouteRerank, Span: "rerank"},
		{Method: "POST", Path: "/v2/rerank", Serve: s.rerankV2, Kind: dialect.RouteCohere, Span: "rerank"},
		{Method: "POST", Path: "/embed", Serve: s.teiEmbed, Kind: dialect.RouteTEI, Span: "tei_embed"},
		{Method: "POST", Path: "/embed_sparse", Serve: s.teiSparse, Kind: dialect.RouteTEI, Span: "tei_embed_sparse"},
		{Method: "POST", Path: "/embed_all", Serve: s.teiAll, Kind: dialect.RouteTEI, Span: "tei_embed_all"},
		{Method: "POST", Path: "/rerank", Serve: s.teiRerank, Kind: dialect.RouteTEI, Span: "tei_rerank"},
		{Method: "POST", Path: "/predict", Serve: s.teiPredict, Kind: dialect.RouteTEI, Span: "tei_predict"},
		{Method: "POST", Path: "/similarity", Serve: s.teiSimilarity, Kind: dialect.RouteTEI, Span: "tei_similarity"},
		{Method: "POST", Path: "/tokenize", Serve: s.teiTokenize, Kind: dialect.RouteTEI, Span: "tei_tokenize"},
		{Method: "POST", Path: "/decode", Serve: s.teiDecode, Kind: dialect.RouteTEI, Span: "tei_decode"},
		{Method: "POST", Path: "/", Serve: s.teiRoot, Kind: dialect.RouteTEI, Span: "tei"},
		{Method: "GET", Path: "/info", Serve: s.teiInfo, Kind: dialect.RouteTEI},
		{Method: "GET", Path: "/health", Serve: s.teiHealth, Kind: dialect.RouteTEI, Open: true},
		{Method: "GET", Path: "/v1/models", Serve: s.listModels},
		{Method: "GET", Path: "/v1/models/", Serve: s.getModel},
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/livez", Serve: s.livez, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
		{Method: "GET", Path: "/metrics", Serve: s.series, Open: true},
		{Method: "GET", Path: "/ws/status", Serve: s.status},
		{Method: "GET", Path: "/openapi.json", Serve: s.openapi, Open: true},
		{Method: "GET", Path: "/docs", Serve: s.docs, Open: true},
		{Method: "GET", Path: "/static/", Serve: s.files, Open: true},
		{Method: "GET", Path: "/", Serve: s.index, Open: true},
	}
}

// outOfScope lists the reference's endpoints that this server answers with 501, and below which prefix.
var outOfScope = []string{
	"/v1/generate/", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/", "/v1/estimate",
	"/v1/recommend", "/v1/jobs", "/v1/files", "/v1/batches",
}

// unrouted returns the 501 of a path that is out of scope.
func unrouted(path string) (dialect.RouteKind, *errs.Error) {
	if scopeless(path) {
		return dialect.RouteOpenAI, errs.OutOfScope(path)
	}
	return dialect.RouteNative, nil
}

func scopeless(path string) bool {
	for _, p := range outOfScope {
		base := strings.TrimSuffix(p, "/")
		if path == base || strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}
