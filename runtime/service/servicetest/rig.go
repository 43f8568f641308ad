// Package servicetest starts workers over the tiny models of testdata, for tests of the layers
// below the server.
//
// Entry points: Start, and the Rig that it returns. Only tests use it.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/testmodels"
	"github.com/sie-engine/sie/weights/hub"
)

// Rig is a worker over tiny models, with what it logged and counted.
type Rig struct {
	*Worker
	T       *testing.T
	Log     *testrig.Log
	Metrics *metrics.Metrics
}

// Start opens a worker with one ad-hoc model for each of ids and with the models of extra. It
// closes the worker when the test ends, and fails the test if goroutines are left over. Without the
// native engine it skips the test.
func Start(t *testing.T, change func(*Options), ids []string, extra ...*catalog.Model) *Rig {
	t.Helper()
	leftOver := testrig.Goroutines(t)
	models := extra
	for _, id := range ids {
		models = append(models, testmodels.AdHoc(t, id, golden.Open(t, testmodels.Dirs[id]).Dir))
	}
	c, err := new(catalog.Catalog).With(models...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := hub.New(hub.Options{CacheDir: t.TempDir(), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	log := &testrig.Log{}
	o := Options{Options: model.Options{Catalog: c, Hub: h, Devices: []engine.Options{{Threads: 2}}, Precision: "fp32", LoadWait: time.Minute,
		Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(log, nil))}}
	if change != nil {
		change(&o)
	}
	w, err := New(o)
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine: run `make test-go`")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		leftOver()
	})
	return &Rig{w, t, log, o.Metrics}
}

// Rows runs a request that must succeed and returns its rows.
func (r *Rig) Rows(q *Request) [][]byte {
	r.T.Helper()
	res, err := r.Encode(r.T.Context(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return res.Rows
}

// Vectors returns the float32 rows of texts.
func (r *Rig) Vectors(model string, texts ...string) [][]float32 {
	r.T.Helper()
	return testmodels.Float32s(r.Rows(&Request{Model: model, Texts: texts}))
}

// Refused runs a request that must fail with this code and status, and returns the error.
func (r *Rig) Refused(ctx context.Context, q *Request, code errs.Code, status int) *errs.Error {
	r.T.Helper()
	_, err := r.Encode(ctx, q)
	e := errs.As(err)
	if e == nil || e.Code != code || e.Status != status {
		r.T.Fatalf("got %v, want %s with status %d", err, code, status)
	}
	return e
}

// All runs requests at the same time and returns the result of each. They share one batch if the
// rig holds it back until all their texts are queued (Held).
func (r *Rig) All(requests ...*Request) (rows [][][]byte, failures []*errs.Error) {
	rows, failures = make([][][]byte, len(requests)), make([]*errs.Error, len(requests))
	var wg sync.WaitGroup
	for i, q := range requests {
		wg.Go(func() {
			res, err := r.Encode(r.T.Context(), q)
			if err != nil {
				failures[i] = errs.As(err)
				return
			}
			rows[i] = res.Rows
		})
	}
	wg.Wait()
	return rows, failures
}

// OfModel reads the gauge or counter of one model.
func (r *Rig) OfModel(name, model string) float64 {
	r.T.Helper()
	return r.Metric(name, "model", model)
}

// Metric reads the gauge or counter that has this label with this value.
func (r *Rig) Metric(name, label, value string) float64 {
	r.T.Helper()
	families, err := r.Metrics.Registry.Gather()
	if err != nil {
		r.T.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	r.T.Fatalf("no metric %s of %s", name, value)
	return 0
}

// Copy returns the loaded model of an id.
func (r *Rig) Copy(id string) *model.Model {
	r.T.Helper()
	l := r.Loaded(id)
	if l == nil {
		r.T.Fatalf("%s is not loaded", id)
	}
	return l
}

// Loads counts the successful loads of id.
func (r *Rig) Loads(id string) int {
	return strings.Count(r.Log.String(), `msg="model ready" model=`+id+" ")
}

// Queued waits until n items are queued for id.
func (r *Rig) Queued(id string, n int) {
	r.T.Helper()
	testrig.Until(r.T, fmt.Sprintf("%d items are queued", n), func() bool {
		m := r.Loaded(id)
		return m != nil && m.Queued() == n || m == nil && n == 0
	})
}

// State returns the loading state of the weights of id.
func (r *Rig) State(id string) registry.State {
	r.T.Helper()
	info, err := r.Model(id)
	if err != nil {
		r.T.Fatal(err)
	}
	return registry.State(info.State)
}

// Entry returns the catalog's entry for id.
func (r *Rig) Entry(id string) *catalog.Resolved {
	r.T.Helper()
	m, err := r.Describe(id)
	if err != nil {
		r.T.Fatal(err)
	}
	return m
}

// Held changes options so that no batch leaves the queue before n items wait.
func Held(n int) func(*Options) {
	return func(o *Options) {
		o.Batch.MaxRequests, o.Batch.Adaptive.Disabled = n, true
		o.Batch.MaxWait, o.Batch.Coalesce, o.Batch.IdleCoalesce = time.Hour, time.Hour, time.Hour
		o.Batch.CoalesceRatio = 1
	}
}
