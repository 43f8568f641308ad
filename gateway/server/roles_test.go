package server

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/inference"
)

// Every route and every role: who is let in, who is asked for a key, who gets a 403, and what
// sie-config is told of the caller of what is its own.
func TestEveryRouteAndRole(t *testing.T) {
	keys := tenants(t, `
- {name: inference, tokens: [inference-token]}
- {name: metrics, tokens: [metrics-token], roles: [metrics]}
- {name: admin, tokens: [admin-token], roles: [admin]}
- {name: all, tokens: [all-token], roles: [admin, metrics, inference]}
`)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Rights", q.Header.Get(gatewayAuth))
		_, _ = w.Write([]byte(q.Header.Get(gatewayAuth)))
	}))
	defer control.Close()
	r := start(t, func(o *Options) { o.Keys, o.ConfigURL = keys, control.URL })
	open := []string{"GET /healthz", "GET /livez", "GET /readyz", "GET /", "GET /docs", "GET /openapi.json",
		"GET /static/"}
	watched := []string{"GET /health", "GET /ws/status", "GET /ws/cluster-status", "GET /v1/usage"}
	relayed := []string{"POST /v1/configs/models", "PUT /v1/configs/models/", "DELETE /v1/configs/models/",
		"GET /v1/configs/export", "GET /v1/configs/epoch"}
	seen := 0
	for _, route := range r.routes(inference.New(inference.Options{})) {
		key, path := route.Method+" "+route.Path, route.Path
		if strings.HasSuffix(path, "/") && path != "/" {
			path += "x"
		}
		for _, c := range []struct{ role, rights string }{
			{"", "none"}, {"wrong", "none"}, {"inference", "read"}, {"metrics", "none"}, {"admin", "admin"},
			{"all", "admin"},
		} {
			a := r.do(route.Method, path, "", "X-API-Key", c.role+"-token")
			if slices.Contains(relayed, key) {
				if seen++; a.body != c.rights {
					t.Errorf("%s of %q: sie-config is told %s, want %s", key, c.role, a.body, c.rights)
				}
				continue
			}
			may := c.role == "all" || c.role == "inference"
			switch {
			case slices.Contains(open, key):
				may = true
			case key == "GET /metrics":
				may = c.role == "all" || c.role == "metrics"
			case slices.Contains(watched, key):
				may = may || c.role == "metrics"
			}
			want := 403
			if c.role == "" || c.role == "wrong" {
				want = 401
			}
			if got := a.status; may && (got == 401 || got == 403) || !may && got != want {
				t.Errorf("%s of %q: %d %.200s", key, c.role, a.status, a.body)
			}
		}
	}
	if seen != 6*len(relayed) {
		t.Errorf("%d requests went to sie-config", seen)
	}
}
