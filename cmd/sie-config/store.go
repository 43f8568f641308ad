package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/internal/bus"
)

// store is what a sie-config keeps its changes in.
type store struct {
	name   string // "none" without one
	ledger *ledger.Ledger
	held   chan error // why the lease of a bucket has ended
	close  func()
}

// openStore opens the store that the flags name, and makes this process its only writer. called is
// told of its calls.
func (c *serveCmd) openStore(
	ctx context.Context, called func(op, result string, took time.Duration), log *slog.Logger,
) (*store, error) {
	me := ledger.NewWriter(producer())
	out := &store{name: "none", held: make(chan error, 1), close: func() {}}
	place := ledger.Memory()
	if c.Store != "" {
		var err error
		if place, err = ledger.OpenPlace(c.Store, me); err != nil {
			return nil, fmt.Errorf("--store %s: %w", c.Store, err)
		}
		out.name = place.String()
	}
	closePlace := func() {
		if err := place.Close(); err != nil {
			log.Warn("store", "error", err)
		}
	}
	out.close = closePlace
	if claimer := ledger.NewClaimer(place, me); claimer != nil {
		if err := claimer.Claim(ctx); err != nil {
			return nil, fmt.Errorf("--store %s: %w", c.Store, err)
		}
		holding, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := claimer.Hold(holding); err != nil {
				out.held <- err
			}
		}()
		out.close = func() { stop(); <-ended; closePlace() }
	}
	var err error
	if out.ledger, err = ledger.Open(ctx, ledger.Observed(place, called), me, log); err != nil {
		out.close()
		return nil, fmt.Errorf("--store %s: %w", c.Store, err)
	}
	return out, nil
}

// producer names this process to people and to those that hear of its changes. Gateways trust what
// begins with sie-config.
func producer() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("sie-config-%s-%d", host, os.Getpid())
}

// connect returns the connection over which changes are told.
func (c *serveCmd) connect(log *slog.Logger) (*nats.Conn, error) {
	return bus.Connect(bus.Options{
		URL: c.NATSURL, Name: "sie-config", Access: c.Access, Inboxes: bus.GatewayInboxes, Log: log,
	})
}
