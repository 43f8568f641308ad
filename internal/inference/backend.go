package inference

import (
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// Head holds what a Backend may use of a request before its body is read.
type Head struct {
	Endpoint       string // its name in metrics: encode, score, embeddings, …
	RequestID      string // of the HTTP request, for logs
	MachineProfile string // X-SIE-MACHINE-PROFILE, as it came
	Pool           string // X-SIE-Pool, as it came
	Priority       string // X-SIE-Priority, as it came
	Hold           string // X-SIE-Hold, as it came
	Tenant         *tenant.Tenant
	Caller         dialect.Caller
	TraceParent    string // of the request's own span, or the caller's; "" for none
	TraceState     string
}

// Backend answers requests: with the models of this process, or through a queue. Its methods are
// safe for concurrent use.
type Backend interface {
	// Begin begins a request. It is cheap: it looks at nothing outside the process, and a Session
	// holds nothing that must be closed until one of its methods has admitted Work.
	Begin(h Head) Session
	// Models lists every model id that requests can name. It loads nothing.
	Models() []api.ModelInfo
}

// Session is one request of a Backend. It belongs to one goroutine.
type Session interface {
	compat.Backend

	// Check returns the error of a request that is refused for its head, whatever its model: a
	// machine profile or a pool that does not exist. Model may be called before Check.
	Check() error

	// Refusal returns why a request for the model of an id ("": for any model) cannot begin now,
	// whatever its body, or nil. It is cheap: an overloaded server calls it thousands of times a
	// second. For an id that Model does not know it returns nil.
	Refusal(id string) *Refusal

	Extract(w *admit.Work, m compat.Model, r *api.ExtractRequest) (*api.ExtractResponse, error)

	// End counts the request. It is called once for each inference request, however it ends, and
	// for others only when they fail. model is the id in the catalog, or "" as long as none was
	// found. o is nil if err says why there is no answer.
	End(model string, o *api.Outcome, err error)
}

// Refusal is an error that was rendered once for many callers. Safe for concurrent use.
type Refusal struct {
	Err    *errs.Error
	answer *dialect.Prepared
}

// Refuse returns e as a Refusal.
func Refuse(e *errs.Error) *Refusal { return &Refusal{e, dialect.Prepare(e)} }
