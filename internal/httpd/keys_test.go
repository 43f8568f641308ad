package httpd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/tenant"
)

// A route takes the roles that it names, and others get a 403. The audit log says who asked, and
// never with what.
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
		`msg=audit event=api_request`, "method=GET endpoint=/watched status=200 token_id=watcher",
		`endpoint=/ status=401 token_id=""`, "endpoint=/ status=403 token_id=watcher",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "calls") || strings.Contains(log, "endpoint=/healthz") {
		t.Error(log)
	}
}
