package configpoll

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A failure after a success is asked about again after FirstRetry, however many were before it.
func TestRetriesBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retries []time.Duration
		asked := 0
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewPoller(0).Run(ctx, func(context.Context) error {
				if asked++; asked == 4 {
					return nil
				}
				return errors.New("away")
			}, func(_ error, retry time.Duration) { retries = append(retries, retry) })
		}()
		time.Sleep(7*FirstRetry + PollEvery + FirstRetry/2)
		stop()
		<-done
		want := []time.Duration{FirstRetry, 2 * FirstRetry, 4 * FirstRetry, FirstRetry}
		if !slices.Equal(retries, want) {
			t.Errorf("%v, want %v", retries, want)
		}
	})
}
