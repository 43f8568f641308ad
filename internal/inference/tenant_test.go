package inference

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/tenant"
)

// tokens returns an Access of a tokens file.
func tokens(t *testing.T, text string) *tenant.Access {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := tenant.Open(tenant.Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A tenant has its models and its quota, on every route and in the words of each API; what it uses
// counts for its token, and the Backend learns who asks.
func TestTenants(t *testing.T) {
	r := startWith(t, tokens(t, `
tenants:
- {name: free, tokens: [free]}
- {name: some, tokens: [some], models: [dense]}
- {name: few, tokens: [few, few2], items_per_s: 0.001}
- {name: small, tokens: [small], in_flight_items: 1}
`))
	for _, c := range []struct {
		token, path, body string
		status            int
		want              string
		retry             bool
	}{
		{"free", "/v1/encode/bare", texts, 200, "", false},
		{"some", "/v1/encode/dense", texts, 200, "", false},
		{"some", "/v1/encode/bare", texts, 403,
			`"FORBIDDEN","message":"The token 'some' may not use model 'bare'"`, false},
		{"some", "/v1/embeddings", `{"model":"bare","input":"a"}`, 403, `"code":"permission_denied"`, false},
		{"some", "/v1/encode/none", texts, 404, "MODEL_NOT_FOUND", false},
		{"small", "/v1/encode/dense", texts, 400, "the token 'small' may have 1 in flight", false},
		{"small", "/v1/embeddings", `{"model":"dense","input":"a"}`, 200, "", false},
		{"few", "/v1/encode/dense", texts, 200, "", false},
		{"few2", "/v1/encode/dense", texts, 429, "RATE_LIMITED", true},
		{"few", "/v1/score/judge", query, 429, "used up its 0.001 items per second", true},
		{"few", "/v1/embeddings", `{"model":"dense","input":"a"}`, 429, `"code":"rate_limit_exceeded"`, true},
		{"few", "/v2/rerank", `{"model":"judge","query":"q","documents":["a"]}`, 429, `{"message":`, true},
		{"few", "/embed", `{"inputs":"a"}`, 429, `"error_type":"Overloaded"`, true},
	} {
		resp, body := r.do(t.Context(), "POST", c.path, c.body, "Authorization", "Bearer "+c.token)
		if resp == nil || resp.StatusCode != c.status || !strings.Contains(body, c.want) ||
			(resp.Header.Get("Retry-After") != "") != c.retry {
			t.Errorf("%s %s: %v %s", c.token, c.path, resp, body)
		}
	}
	for token, n := range map[string]int{"free": 1, "small": 1} {
		_, body := r.do(t.Context(), "GET", "/v1/models", "", "X-API-Key", token)
		if strings.Count(body, `"name"`) != n {
			t.Errorf("%s sees %s", token, body)
		}
	}
	if resp, body := r.do(t.Context(), "GET", "/v1/models/bare", "", "X-API-Key", "some"); resp.StatusCode !=
		http.StatusForbidden {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if h := r.heads[0]; h.Tenant.Key() != "free" {
		t.Errorf("the backend was asked by %q", h.Tenant.Key())
	}
	if n := fmt.Sprint(r.gate.Running()); n != "0" {
		t.Errorf("%s requests run", n)
	}
}
