package server

import (
	"slices"

	"github.com/valyala/fasthttp"
)

// exposed are the headers of an answer that scripts of other origins may read.
const exposed = "Retry-After, X-Request-ID, X-SIE-Request-ID, X-SIE-Error-Code, X-SIE-Server-Version, X-SIE-Model-Revision, X-Trace-ID, " +
	"X-Total-Time, X-Queue-Time, X-Tokenization-Time, X-Inference-Time, X-SIE-Units-Input-Tokens"

// cors lets scripts of the allowed origins read an answer, and answers their preflight: done says that nothing is left to do.
// Cookies play no part here, so credentials are not allowed.
func (s *Server) cors(ctx *fasthttp.RequestCtx) (done bool) {
	if len(s.opt.CORSOrigins) == 0 {
		return false
	}
	h := &ctx.Response.Header
	origin := header(ctx, "Origin")
	any := slices.Contains(s.opt.CORSOrigins, "*")
	if !any {
		h.Add("Vary", "Origin")
	}
	allowed := any || slices.Contains(s.opt.CORSOrigins, origin)
	if allowed {
		if any {
			origin = "*"
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
	}
	if !allowed || !ctx.IsOptions() || len(ctx.Request.Header.Peek("Access-Control-Request-Method")) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
	if wanted := header(ctx, "Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "600")
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return true
}
