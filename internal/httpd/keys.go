package httpd

import (
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// keyProtocol begins the subprotocol in which a browser sends its key to a WebSocket, in base64url
// without padding. A browser cannot set headers there, and a key in the URL would be written to
// logs.
const keyProtocol = "sie.key."

// keyOf returns the key that a request carries, or "".
func keyOf(h *fasthttp.RequestHeader) string {
	key := string(h.Peek("X-API-Key"))
	if scheme, rest, ok := strings.Cut(string(h.Peek("Authorization")), " "); ok &&
		strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(rest)
	}
	if key == "" {
		for p := range strings.SplitSeq(string(h.Peek("Sec-WebSocket-Protocol")), ",") {
			if coded, ok := strings.CutPrefix(strings.TrimSpace(p), keyProtocol); ok {
				b, _ := base64.RawURLEncoding.DecodeString(coded)
				key = string(b)
			}
		}
	}
	return key
}

// authenticate returns the tenant of a request, nil if the server asks for no key, or the 401.
func (s *Server) authenticate(h *fasthttp.RequestHeader) (*tenant.Tenant, *errs.Error) {
	if s.opt.Keys == nil {
		return nil, nil
	}
	key := keyOf(h)
	if key == "" {
		return nil, errs.NoKey()
	}
	if t := s.opt.Keys.Find(key); t != nil {
		return t, nil
	}
	return nil, errs.WrongKey()
}

// admit reports whether a request may use a route of some roles; if not, it has answered it. A
// client without a key learns nothing about the route.
func (r *Request) admit(kind dialect.RouteKind, any tenant.Role) bool {
	t, err := r.server.authenticate(&r.Request.Header)
	r.tenant = t
	if err == nil && !t.Has(cmp.Or(any, tenant.Inference)) {
		err = t.Forbid("use this route: its role is another")
	}
	if err == nil {
		return true
	}
	r.discard()
	r.Fail(kind, err)
	return false
}

// Identify returns whose request it is, nil for nobody's, on a route that needs no key and asks
// who its caller is all the same.
func (r *Request) Identify() *tenant.Tenant {
	if t, err := r.server.authenticate(&r.Request.Header); err == nil {
		r.tenant = t
	}
	return r.tenant
}

// Tenant returns whose request it is, nil on a server without keys and on routes that need none.
func (r *Request) Tenant() *tenant.Tenant { return r.tenant }
