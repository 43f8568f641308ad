package server

import (
	"os"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
)

func (s *Server) listModels(ctx *fasthttp.RequestCtx, _ string) {
	ctx.SetContentType("application/json")
	ctx.SetBody(api.AppendModelsJSON(nil, s.worker.Models()))
}

func (s *Server) getModel(ctx *fasthttp.RequestCtx, model string) {
	info, err := s.worker.Model(model)
	if err != nil {
		s.refuse(ctx, call{endpoint: "models", kind: dialect.RouteNative}, err)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(api.AppendModelJSON(nil, info))
}

// caller says who asks, as far as the headers tell.
func caller(ctx *fasthttp.RequestCtx) dialect.Caller {
	return dialect.ParseCaller(header(ctx, "X-SIE-SDK-Version"))
}

// WorkerName is the name a worker reports: what the operator set, else the host's.
func WorkerName() string {
	for _, k := range []string{"SIE_WORKER_ID", "HOSTNAME", "POD_NAME"} {
		if v := strings.TrimSpace(os.Getenv(k)); v != "" {
			return v
		}
	}
	h, _ := os.Hostname()
	return h
}
