package testmodels

import (
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/weights/hub"
)

// Catalog returns a catalog of one ad-hoc model for each of ids, and of more.
func Catalog(t *testing.T, ids []string, more ...*catalog.Model) *catalog.Catalog {
	t.Helper()
	for _, id := range ids {
		more = append(more, AdHoc(t, id, golden.Open(t, Dirs[id]).Dir))
	}
	c, err := new(catalog.Catalog).With(more...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Hub returns a resolver that downloads nothing.
func Hub(t testing.TB) *hub.Resolver {
	t.Helper()
	h, err := hub.New(hub.Options{CacheDir: t.TempDir(), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Held changes options so that no batch leaves the queue before n items wait.
func Held(o *batch.Options, n int) {
	o.MaxRequests, o.Adaptive.Disabled, o.CoalesceRatio = n, true, 1
	o.MaxWait, o.Coalesce, o.IdleCoalesce = time.Hour, time.Hour, time.Hour
}

// All asks all requests at the same time and returns the rows or the error of each.
func All[Q any](ask func(Q) ([][]byte, error), requests []Q) (rows [][][]byte, failures []*errs.Error) {
	rows, failures = make([][][]byte, len(requests)), make([]*errs.Error, len(requests))
	var wg sync.WaitGroup
	for i, q := range requests {
		wg.Go(func() {
			var err error
			rows[i], err = ask(q)
			failures[i] = errs.As(err)
		})
	}
	wg.Wait()
	return rows, failures
}

// Refused fails the test unless err has this code and status, and returns it.
func Refused(t *testing.T, err error, code errs.Code, status int) *errs.Error {
	t.Helper()
	e := errs.As(err)
	if e == nil || e.Code != code || e.Status != status {
		t.Fatalf("got %v, want %s with status %d", err, code, status)
	}
	return e
}
