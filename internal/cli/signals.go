package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// stopSignals is replaced by a test.
var stopSignals = signal.Stop

// UntilSignal returns a context that ends with SIGTERM or an interrupt. A second one ends the
// process at once: when the context ends, signals have their default action again, so a program
// that then says so is right. With signal.NotifyContext its stop would have to be called for that,
// and a second signal may come before. stop gives the signals back; the context ends then, too.
func UntilSignal() (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	go func() {
		select {
		case <-received:
		case <-ctx.Done():
		}
		stopSignals(received)
		cancel()
	}()
	return ctx, cancel
}
