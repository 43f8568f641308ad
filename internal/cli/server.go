package cli

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/obs"
)

// Log holds the flags of a server's log and traces.
type Log struct {
	Verbose  bool   `help:"Log every request that is refused: its id, code and field; never a text, a key or a header." short:"v"`
	JSONLogs bool   `help:"Log JSON; the same as --log-format json." env:"SIE_LOG_JSON"`
	Format   string `name:"log-format" help:"text or json." env:"SIE_LOG_FORMAT" default:"text" enum:"text,json"`
	Access   bool   `name:"access-log" help:"Log every request: id, path, status, model, counts and times; never texts or keys." env:"SIE_ACCESS_LOG"`
	Audit    bool   `name:"audit-log" help:"Log who asked for what: the end of the token, its name, path, status, model, pool, worker and time of every request but those of probes." env:"SIE_AUDIT_LOG"`
	Tracing  bool   `help:"Send traces and metrics to an OTLP collector; the OTEL_ variables say where." env:"SIE_TRACING_ENABLED"`
}

// Logger returns the logger that the flags select, writing to w.
func (f *Log) Logger(w io.Writer) *slog.Logger {
	return obs.NewLogger(w, f.JSONLogs || f.Format == "json", f.Verbose)
}

// Telemetry starts sending to a collector if the flags ask for it; otherwise it returns nil.
func (f *Log) Telemetry(
	ctx context.Context, service, version string, metrics prometheus.Gatherer, log *slog.Logger,
) (*obs.Telemetry, error) {
	if !f.Tracing {
		return nil, nil
	}
	return obs.StartTelemetry(ctx, service, version, metrics, log)
}

// Limits holds the flags that bound requests and connections.
type Limits struct {
	MaxBody        int           `name:"max-request-body-bytes" help:"Bytes of a request body; more get 413." env:"SIE_MAX_REQUEST_BODY_BYTES" default:"35651584" range:"1..1099511627776"`
	MaxItemText    int           `name:"max-item-text-bytes" help:"Bytes of text and metadata of one item." env:"SIE_MAX_ITEM_TEXT_BYTES" default:"2097152" range:"1..1099511627776"`
	MaxItems       int           `help:"Items of a request; 0: no limit." env:"SIE_MAX_ITEMS" range:"0..1073741824"`
	MaxScoreItems  int           `help:"Candidates of a score request; 0: no limit." env:"SIE_MAX_SCORE_ITEMS" range:"0..1073741824"`
	MaxLabels      int           `help:"Labels of an extract request; 0: no limit." env:"SIE_MAX_LABELS" range:"0..1073741824"`
	MaxHeldBytes   int64         `help:"Bytes of request bodies and results in memory together." env:"SIE_MAX_HELD_BYTES" default:"1073741824" range:"1..1125899906842624"`
	MaxConns       int           `help:"Open connections." env:"SIE_MAX_CONNS" default:"4096" range:"1..1048576"`
	RequestTimeout time.Duration `help:"Time for an answer; later ones get 504." env:"SIE_REQUEST_TIMEOUT" default:"140s" range:"1ms..24h"`
	DrainTimeout   time.Duration `help:"Time that a shutdown may take: running requests finish, then models are closed; what is left then ends with the process." env:"SIE_DRAIN_TIMEOUT" default:"25s" range:"0s..24h"`

	MaxHeadBytes int           `help:"Bytes of a request's head; more get 431." env:"SIE_MAX_HEAD_BYTES" default:"16384" range:"1024..1048576"`
	HeadTimeout  time.Duration `help:"Time for a request's head." env:"SIE_HEAD_TIMEOUT" default:"30s" range:"1ms..24h"`
	BodyTimeout  time.Duration `help:"Time for a request's body." env:"SIE_BODY_TIMEOUT" default:"5m" range:"1ms..24h"`
	BodyStall    time.Duration `help:"Time between two pieces of a body." env:"SIE_BODY_STALL" default:"20s" range:"1ms..24h"`
	WriteTimeout time.Duration `help:"Time for a client to take an answer." env:"SIE_WRITE_TIMEOUT" default:"2m" range:"1ms..24h"`
	KeepAlive    time.Duration `help:"Time a connection may be idle." env:"SIE_KEEP_ALIVE" default:"2m" range:"1ms..24h"`
	MaxWatchers  int           `name:"max-status-sockets" help:"Open status sockets." env:"SIE_MAX_STATUS_SOCKETS" default:"256" range:"1..65536"`
}

// Requests returns the bounds on the content of a request.
func (f *Limits) Requests() api.Limits {
	return api.Limits{
		MaxBodyBytes:     f.MaxBody,
		MaxItemTextBytes: f.MaxItemText,
		MaxItems:         f.MaxItems,
		MaxScoreItems:    f.MaxScoreItems,
		MaxLabels:        f.MaxLabels,
	}
}

// Admission returns the bounds on all requests together, and on the time of each.
func (f *Limits) Admission() admit.Options {
	return admit.Options{MaxHeldBytes: f.MaxHeldBytes, Timeout: f.RequestTimeout}
}

// Server returns the options of the server that follow from the flags.
func (f *Limits) Server(s Secured, l *Log, log *slog.Logger) httpd.Options {
	return httpd.Options{
		Log: log, AccessLog: l.Access, AuditLog: l.Audit, Keys: s.Access, CORSOrigins: s.Origins,
		MaxBodyBytes: int64(f.MaxBody),
		MaxConns:     f.MaxConns, MaxHeadBytes: f.MaxHeadBytes, HeadTimeout: f.HeadTimeout,
		BodyTimeout: f.BodyTimeout, BodyStall: f.BodyStall, WriteTimeout: f.WriteTimeout,
		KeepAlive: f.KeepAlive,
	}
}
