package httpd

import (
	"time"

	"github.com/sie-engine/sie/internal/api"
)

// unaudited holds the paths of machines that look in every few seconds.
var unaudited = map[string]bool{
	"/health": true, "/healthz": true, "/livez": true, "/readyz": true, "/metrics": true,
}

// audit writes who asked for what, in the reference's fields. token_id is the name of the tenant,
// never a part of a token; model, pool, gpu and worker are those that answered, "" if none did.
func (r *Request) audit() {
	path := string(r.URI().PathOriginal())
	if unaudited[path] {
		return
	}
	n := &r.Note
	r.server.opt.Log.Info("audit", "event", "api_request", "id", r.ID, "method", string(r.Method()),
		"endpoint", path, "status", r.Response.StatusCode(), "token_id", r.tenant.Key(), "model", n.Model,
		"pool", n.Pool, "gpu", n.Profile, "worker", n.Worker, "latency_ms",
		api.Milliseconds(time.Since(r.start)), "body_bytes", max(r.Request.Header.ContentLength(), 0))
}

// Audit writes what was done to a thing of the cluster, such as pool.create, where the server has
// an audit log.
func (r *Request) Audit(event, name string) {
	if r.server.opt.AuditLog {
		r.server.opt.Log.Info("audit", "event", event, "id", r.ID, "name", name, "token_id", r.tenant.Key())
	}
}
