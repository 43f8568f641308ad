package ledger

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// silent is a bucket that takes requests and never answers.
type silent struct{}

func (silent) String() string { return "s3://silent/" }

func (silent) wait(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s silent) List(ctx context.Context, _ string, _ int) ([]bucket.Object, error) {
	return nil, s.wait(ctx)
}

func (s silent) Open(
	ctx context.Context, _ string, _ int64, _ string,
) (o bucket.Object, _ io.ReadCloser, err error) {
	return o, nil, s.wait(ctx)
}

func (s silent) Put(
	ctx context.Context, _ string, _ io.ReaderAt, _ int64, _ bucket.Condition,
) (string, error) {
	return "", s.wait(ctx)
}

func (s silent) Delete(ctx context.Context, _ string) error { return s.wait(ctx) }

// A bucket that never answers ends a start with an error that names it and the time, and holds
// nothing else for longer either.
func TestSilentBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place, me := objects{silent{}}, NewWriter("test")
		log := slog.New(slog.DiscardHandler)
		l := &Ledger{place: place, log: log, left: []string{"a"}}
		for name, c := range map[string]struct {
			after time.Duration
			call  func(ctx context.Context) error
		}{
			"claim": {time.Minute, func(ctx context.Context) error {
				return NewClaimer(place, me).Claim(ctx)
			}},
			"open": {time.Minute, func(ctx context.Context) error {
				_, err := Open(ctx, place, me, log)
				return err
			}},
			"put": {time.Minute, func(ctx context.Context) error {
				_, err := place.Put(ctx, "x", nil, bucket.Condition{})
				return err
			}},
			"list": {5 * time.Minute, func(ctx context.Context) error {
				_, err := place.List(ctx, "x", 1)
				return err
			}},
			"tidy": {time.Minute, func(ctx context.Context) error { l.Tidy(ctx); return nil }},
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			err := c.call(ctx)
			cancel()
			took := time.Since(began)
			said := err != nil && strings.Contains(err.Error(), "s3://silent/") &&
				strings.Contains(err.Error(), "no answer within "+c.after.String())
			if took != c.after || said != (name != "tidy") {
				t.Errorf("%s took %v: %v", name, took, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the caller's own limit stays
		defer cancel()
		if _, _, err := place.Get(ctx, "x", 1); err == nil || strings.Contains(err.Error(), "no answer") {
			t.Errorf("a caller with less time: %v", err)
		}
	})
}

// A lease that cannot be read is named.
func TestABrokenLeaseIsNamed(t *testing.T) {
	place := Memory()
	if _, err := place.Put(t.Context(), leaseKey, []byte("{"), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	c := &Claimer{place: place, me: NewWriter("test")}
	if err := c.Claim(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "memory/writer.json: ") {
		t.Errorf("%v", err)
	}
}
