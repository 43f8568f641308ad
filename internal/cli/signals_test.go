package cli

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The context ends when the signals have their default action again, not before: a second signal
// that comes once a program has said that it ends must end it.
func TestSecondSignalIsNotCaught(t *testing.T) {
	defer func() { stopSignals = signal.Stop }()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		stopping, proceed := make(chan chan<- os.Signal), make(chan struct{})
		stopSignals = func(c chan<- os.Signal) {
			stopping <- c
			<-proceed
			signal.Stop(c)
		}
		ctx, stop := UntilSignal()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		received := <-stopping
		if ctx.Err() != nil {
			t.Errorf("%v: the context has ended, and a second signal would still be caught", s)
		}
		if cap(received) != 1 {
			t.Errorf("%v: a channel of %d", s, cap(received))
		}
		close(proceed)
		<-ctx.Done()
		stop()
	}
}

// Without a signal stop ends the context and gives the signals back.
func TestSignalsAreGivenBack(t *testing.T) {
	defer func() { stopSignals = signal.Stop }()
	given := make(chan struct{})
	stopSignals = func(c chan<- os.Signal) { signal.Stop(c); close(given) }
	ctx, stop := UntilSignal()
	stop()
	<-ctx.Done()
	<-given
}
