package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/sie-engine/sie/internal/obs"
)

const (
	// closeGrace is what closing has where the drain has used up its time.
	closeGrace = time.Second
	// telemetryTime is how long a collector may take what is waiting for it.
	telemetryTime = 5 * time.Second
)

// closeBy closes something, and leaves it to the end of the process where that takes longer than
// until end, or closeGrace from now where that is later. A load in a file system that does not
// answer cannot be ended.
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

// closeTelemetry sends what is waiting, until end at the latest.
func closeTelemetry(end time.Time, t *obs.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), min(telemetryTime, max(closeGrace, time.Until(end))))
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("telemetry", "error", err)
	}
}

// drainer is the server, as shutdown needs it.
type drainer interface {
	Shutdown(ctx context.Context) error
}

// drain lets running requests finish until end.
func drain(s drainer, end time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	return s.Shutdown(ctx)
}
