package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/sie-engine/sie/internal/obs"
)

const (
	// closeGrace is the least time for closing, even if the drain has used up all time.
	closeGrace = time.Second
	// telemetryTime bounds sending what waits for the collector.
	telemetryTime = 5 * time.Second
)

// closeBy calls closer and waits for it until end, or for closeGrace if that is later. After that
// it leaves closer to the end of the process, because a load in a file system that does not answer
// cannot be stopped.
func closeBy(end time.Time, what string, log *slog.Logger, closer func()) {
	done := make(chan struct{})
	go func() { // ends with closer, or with the process
		defer close(done)
		closer()
	}()
	limit := time.NewTimer(max(closeGrace, time.Until(end)))
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		log.Warn("not everything could be closed; the process ends all the same", "open", what)
	}
}

// closeTelemetry sends what waits for the collector, for at most telemetryTime. It stops at end, or
// after closeGrace if that is later.
func closeTelemetry(end time.Time, t *obs.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(),
		min(telemetryTime, max(closeGrace, time.Until(end))))
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("telemetry", "error", err)
	}
}

// drainer is the part of the server that shutting down needs.
type drainer interface {
	Shutdown(ctx context.Context) error
}

// drain lets running requests finish until end.
func drain(s drainer, end time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	return s.Shutdown(ctx)
}
