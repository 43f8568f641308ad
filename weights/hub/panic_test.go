package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/weights/bucket"
)

// faultyTransport panics on a request for a file's content.
type faultyTransport struct{ http.RoundTripper }

func (f faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/resolve/") {
		panic("a fault")
	}
	return f.RoundTripper.RoundTrip(r)
}

// wantPanic checks that an error is a panic of a function of that name.
func wantPanic(t *testing.T, err error, by string) {
	t.Helper()
	var p *guard.Panic
	if !errors.As(err, &p) || p.Value != "a fault" || !strings.Contains(string(p.Stack), by) {
		t.Errorf("%v, want the panic", err)
	}
}

// A panic while a file is downloaded, on a goroutine of its own, fails that download and not the
// process. Nothing of it stays locked.
func TestPanicWhileAFileIsDownloaded(t *testing.T) {
	h := newHarness(t)
	_, err := h.resolve(func(o *Options) { o.Transport = faultyTransport{http.DefaultTransport} })
	wantPanic(t, err, "faultyTransport")
	h.wantInvisible()
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
}

// faultyBucket has no object. It panics when it is listed or, where it has locks, at their renewal.
type faultyBucket struct {
	bucket.Bucket
	renewed chan struct{} // closed at the renewal; nil: no locks
}

func (b faultyBucket) String() string { return "s3://faulty/" }

func (b faultyBucket) Open(
	context.Context, string, int64, string,
) (bucket.Object, io.ReadCloser, error) {
	return bucket.Object{}, nil, bucket.ErrNotFound
}

func (b faultyBucket) List(context.Context, string, int) ([]bucket.Object, error) {
	if b.renewed == nil {
		panic("a fault")
	}
	<-b.renewed
	return nil, nil
}

func (b faultyBucket) Put(
	_ context.Context, _ string, _ io.ReaderAt, _ int64, when bucket.Condition,
) (string, error) {
	switch {
	case when.Absent && b.renewed == nil:
		return "", bucket.ErrUnsupported
	case when.Version != "":
		close(b.renewed)
		panic("a fault")
	}
	return "version", nil
}

// A panic of an upload, and of the renewal of its lock, ends these alone; the log has its stack.
func TestPanicWhileAModelIsUploaded(t *testing.T) {
	for name, c := range map[string]struct {
		bucket faultyBucket
		says   []string
	}{
		"the upload": {faultyBucket{}, []string{"could not be put", "faultyBucket.List"}},
		"the renewal": {faultyBucket{renewed: make(chan struct{})},
			[]string{"faultyBucket.Put", "is in the cluster cache now"}},
	} {
		h := newHarness(t)
		var log bytes.Buffer
		r := h.resolver(func(o *Options) {
			o.Bucket, o.Log = c.bucket, slog.New(slog.NewTextHandler(&log, nil))
		})
		r.uploads.lease = 4 * time.Millisecond
		found, err := r.Resolve(t.Context(), modelID, "")
		if err != nil {
			t.Fatal(err)
		}
		h.wantWhole(found.Dir)
		r.Shutdown(t.Context())
		for _, says := range append(c.says, "panic: a fault") {
			if !strings.Contains(log.String(), says) {
				t.Errorf("%s: the log does not say %q:\n%s", name, says, &log)
			}
		}
	}
}
