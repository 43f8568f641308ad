package httpd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/tenant"
)

// A route takes the roles that it names, and others get a 403. The audit log says who asked, with
// no more than the end of a token.
func TestRoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "tenants:\n- {name: caller, tokens: [calls]}\n- {name: watcher, tokens: [watch], roles: [metrics]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := tenant.Open(tenant.Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Keys: keys, AuditLog: true})
	for _, c := range []struct {
		path, key string
		status    int
	}{
		{"/", "calls", 200}, {"/", "watch", 403}, {"/", "other", 401}, {"/watched", "watch", 200},
		{"/watched", "calls", 403}, {"/both", "watch", 200}, {"/both", "calls", 200}, {"/open", "", 200},
		{"/nothing", "watch", 404}, {"/healthz", "calls", 404},
	} {
		a := r.do("GET", c.path, "", "X-API-Key", c.key)
		if a.status != c.status || a.status == 403 && !strings.Contains(a.body, "FORBIDDEN") {
			t.Errorf("%s with %q: %d %s", c.path, c.key, a.status, a.body)
		}
	}
	log := r.log.String()
	for _, want := range []string{
		`msg=audit event=api_request`, "method=GET endpoint=/watched status=200 token_id=*atch tenant=watcher",
		`endpoint=/ status=401 token_id=*ther tenant=""`,
		"endpoint=/ status=403 token_id=*atch tenant=watcher",
		`endpoint=/open status=200 token_id="" tenant=""`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "calls") || strings.Contains(log, "endpoint=/healthz") {
		t.Error(log)
	}
}

// Of a token logs show the last four characters, and of a short one none.
func TestTokenID(t *testing.T) {
	for token, want := range map[string]string{"": "", "abc": "****", "abcd": "****", "12345": "*2345",
		"secret-token-123": "************-123", "okén-tokén": "******okén",
		strings.Repeat("x", 5000): strings.Repeat("*", 60) + "xxxx"} {
		r := Request{RequestCtx: &fasthttp.RequestCtx{}}
		r.Request.Header.Set("Authorization", "Bearer "+token)
		if got := r.tokenID(); got != want {
			t.Errorf("%.20q: %q, want %q", token, got, want)
		}
	}
}
