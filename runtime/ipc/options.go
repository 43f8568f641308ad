package ipc

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/service"
)

// Options configures a Server. Zero fields take the defaults in brackets.
type Options struct {
	Service *service.Service // required
	Configs *Configs         // required: the models that a sidecar adds
	Limits  api.Limits       // bounds on items, as on those of HTTP bodies
	// WorkerID names this server in answers to Ping.
	WorkerID string
	// Ready reports whether the models that must be loaded at the start are [always].
	Ready func() bool

	Tracer    trace.Tracer // [no traces]
	Log       *slog.Logger // [slog.Default()]
	AccessLog bool         // a line for every slice

	MaxConns  int // connections; more are closed at once [16]
	MaxCalls  int // calls of a connection that run at once; more are refused [8,192]
	MaxSlices int // slices of all connections that run at once; more are given back [4,096]
}

// Validate returns everything that is wrong with the options, or nil.
func (o *Options) Validate() error {
	var all []error
	if o.Service == nil {
		all = append(all, errors.New("ipc: Service is required"))
	}
	if o.Configs == nil {
		all = append(all, errors.New("ipc: Configs is required"))
	}
	for _, x := range []struct {
		name  string
		value int
	}{{"MaxConns", o.MaxConns}, {"MaxCalls", o.MaxCalls}, {"MaxSlices", o.MaxSlices}} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("ipc: %s must not be negative; got %d", x.name, x.value))
		}
	}
	return errors.Join(all...)
}

func (o *Options) setDefaults() {
	for _, x := range []struct {
		value    *int
		standard int
	}{{&o.MaxConns, 16}, {&o.MaxCalls, 8192}, {&o.MaxSlices, 4096}} {
		if *x.value == 0 {
			*x.value = x.standard
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
}

// FreshHeartbeat is how old the last Ping may be for Beating.
const FreshHeartbeat = 10 * time.Second
