package httpd

import (
	"net/url"
	"slices"

	"github.com/valyala/fasthttp"
)

// exposed are the headers of an answer that scripts of other origins may read.
const exposed = "Retry-After, X-Request-ID, X-SIE-Request-ID, X-SIE-Error-Code, X-SIE-Server-Version, X-SIE-Model-Revision, X-Trace-ID, " +
	"X-Total-Time, X-Queue-Time, X-Tokenization-Time, X-Inference-Time, X-SIE-Units-Input-Tokens, X-SIE-Warning, X-SIE-Worker, X-SIE-Model, " +
	"X-Queue-Publish-Time, X-Queue-Wait-Time"

// cors lets scripts of the allowed origins read an answer, and answers their preflight requests.
// done reports that the request is answered. The server uses no cookies, so credentials are not
// allowed.
func (s *Server) cors(r *Request) (done bool) {
	if len(s.opt.CORSOrigins) == 0 {
		return false
	}
	h := &r.Response.Header
	origin := r.Header("Origin")
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
	if !allowed || !r.IsOptions() || len(r.Request.Header.Peek("Access-Control-Request-Method")) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
	if wanted := r.Header("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "600")
	r.SetStatusCode(fasthttp.StatusNoContent)
	return true
}

func (s *Server) allowed(origin string) bool {
	return slices.Contains(s.opt.CORSOrigins, "*") || slices.Contains(s.opt.CORSOrigins, origin)
}

// Foreign reports whether the request comes from a page of an origin that is not allowed. Browsers
// keep answers from scripts of such pages, but not the messages of a WebSocket, so the status
// socket calls Foreign. If a proxy in front has changed Host, X-Forwarded-Host or the browser's
// Sec-Fetch-Site header tells so.
func (r *Request) Foreign() bool {
	origin := r.Header("Origin")
	if origin == "" || r.server.allowed(origin) || r.Header("Sec-Fetch-Site") == "same-origin" {
		return false // no browser, or an allowed origin
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || u.Host != r.Header("Host") && u.Host != r.Header("X-Forwarded-Host")
}
