package server

import (
	"net/url"
	"slices"

	"github.com/valyala/fasthttp"
)

// exposed are the headers of an answer that scripts of other origins may read.
const exposed = "Retry-After, X-Request-ID, X-SIE-Request-ID, X-SIE-Error-Code, X-SIE-Server-Version, X-SIE-Model-Revision, X-Trace-ID, " +
	"X-Total-Time, X-Queue-Time, X-Tokenization-Time, X-Inference-Time, X-SIE-Units-Input-Tokens, X-SIE-Warning"

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
	allowed := s.allowed(origin)
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

func (s *Server) allowed(origin string) bool {
	return slices.Contains(s.opt.CORSOrigins, "*") || slices.Contains(s.opt.CORSOrigins, origin)
}

// foreign reports whether a page of an origin that is not allowed asks. Browsers keep answers from such scripts, but not what
// comes through a WebSocket, so the status socket asks. A proxy in front may have changed Host; it then says so, or the browser
// does.
func (s *Server) foreign(ctx *fasthttp.RequestCtx) bool {
	origin := header(ctx, "Origin")
	if origin == "" || s.allowed(origin) || header(ctx, "Sec-Fetch-Site") == "same-origin" {
		return false // no browser, or one of ours
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || u.Host != header(ctx, "Host") && u.Host != header(ctx, "X-Forwarded-Host")
}
