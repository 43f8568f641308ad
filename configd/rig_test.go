package configd_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/weights/bucket"
)

// relay sends a client's requests to a server of a test, and knows whether the last answer had
// changes alone.
type relay struct {
	t     *testing.T
	ask   asking
	since bool
}

func (r *relay) client() *http.Client { return &http.Client{Transport: r} }

func (r *relay) RoundTrip(q *http.Request) (*http.Response, error) {
	a, v := r.ask(q.Method, q.URL.RequestURI(), "", "")
	_, r.since = v["since"]
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Request: q,
		Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

// slow is a place whose records, while hold is set, wait for leave.
type slow struct {
	ledger.Place
	hold           atomic.Bool
	entered, leave chan struct{}
}

func (s *slow) Put(ctx context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	if s.hold.Load() && strings.HasPrefix(key, "log-") {
		s.entered <- struct{}{}
		<-s.leave
	}
	return s.Place.Put(ctx, key, data, when)
}
