package httpd

import (
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/api"
)

// unaudited holds the paths of machines that look in every few seconds.
var unaudited = map[string]bool{
	"/health": true, "/healthz": true, "/livez": true, "/readyz": true, "/metrics": true,
}

// audit writes who asked for what, in the reference's fields: token_id is the end of the token that
// was sent, see tokenID. model, pool, gpu and worker are those that answered, "" if none did. What
// a worker answered has a second line, with the operation in place of the path.
func (r *Request) audit() {
	path := string(r.URI().PathOriginal())
	if unaudited[path] {
		return
	}
	line := func(event, endpoint string) {
		n := &r.Note
		r.server.opt.Log.Info("audit", "event", event, "id", r.ID, "method", string(r.Method()),
			"endpoint", endpoint, "status", r.Response.StatusCode(), "token_id", r.tokenID(), "tenant",
			r.tenant.Key(), "model", n.Model, "pool", n.Pool, "gpu", n.Profile, "worker", n.Worker,
			"latency_ms", api.Milliseconds(time.Since(r.start)), "body_bytes",
			max(r.Request.Header.ContentLength(), 0))
	}
	line("api_request", path)
	if r.Note.Worker != "" {
		line("proxy_request", r.Note.Operation)
	}
}

// Audit writes what was done to a thing of the cluster, such as pool.create, where the server has
// an audit log.
func (r *Request) Audit(event, name string) {
	if r.server.opt.AuditLog {
		r.server.opt.Log.Info("audit", "event", event, "id", r.ID, "name", name, "token_id", r.tokenID(),
			"tenant", r.tenant.Key())
	}
}

const (
	shownOfToken = 4  // characters at its end
	mostStars    = 60 // that stand for the others
)

// tokenID returns what logs say of the token that a request carries, right or wrong: its last four
// characters behind a star for each other one, only stars for a shorter token, "" for none.
func (r *Request) tokenID() string {
	token := []rune(keyOf(&r.Request.Header))
	hidden := len(token) - shownOfToken
	switch {
	case len(token) == 0:
		return ""
	case hidden <= 0:
		return strings.Repeat("*", shownOfToken)
	}
	return strings.Repeat("*", min(hidden, mostStars)) + string(token[hidden:])
}
