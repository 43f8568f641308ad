package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The waits between tries. They double from the first to the longest. Each is drawn from its upper
// half, so that workers that failed together do not retry together. A server that asks for a longer
// wait gets it up to retryAfterMax. Beyond that the load fails at once and says when to try again.
const (
	backoffFirst   = 500 * time.Millisecond
	backoffLongest = 20 * time.Second
	retryAfterMax  = 2 * time.Minute
	// unreachableMax bounds the tries in a row that fail to connect, so that a machine without a
	// network reports it soon.
	unreachableMax = 3
)

// transientError marks a failure that may pass. after is the wait that the server asked for, or 0.
type transientError struct {
	err         error
	after       time.Duration
	unreachable bool // no connection was made
}

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

func transient(format string, args ...any) error {
	return &transientError{err: fmt.Errorf(format, args...)}
}

// retrier runs an operation until it succeeds or another try is useless.
type retrier struct {
	attempts int
	sleep    func(context.Context, time.Duration) error
	who      string // the server's name in messages, "the hub"
	check    string // the things to check when it does not answer
}

// run calls try until it returns nil or an error that is not transient. try also returns the bytes
// it gained. A try that gained bytes resets the count of failures, because a long download over a
// bad line makes progress. There are at most total tries even then, so that a server that gives one
// byte a connection does not hold a load forever.
func (r retrier) run(ctx context.Context, total int, try func() (gained int64, err error)) error {
	failures, unreachable := 0, 0
	for n := 1; ; n++ {
		gained, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		t, ok := errors.AsType[*transientError](err)
		if !ok {
			return err
		}
		if gained > 0 {
			failures = 0
		}
		if !t.unreachable {
			unreachable = 0
		} else if unreachable++; unreachable >= unreachableMax {
			return fail(ClassNetwork, t.err, "%s cannot be reached; check %s, or work from a filled cache",
				r.who, r.check)
		}
		if failures++; failures >= r.attempts || n >= total {
			return fail(ClassNetwork, t.err, "gave up after %d tries; check %s", n, r.check)
		}
		if t.after > retryAfterMax {
			return fail(ClassNetwork, t.err,
				"%s asks to wait %s; try again then (with HF_TOKEN set, the hub's limits are higher)",
				r.who, t.after.Round(time.Second))
		}
		wait := min(backoffFirst<<(failures-1), backoffLongest)
		wait = wait/2 + rand.N(wait/2+1)
		if err := r.sleep(ctx, max(wait, t.after)); err != nil {
			return contextError(ctx)
		}
	}
}
