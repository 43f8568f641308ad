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
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/testmodels"
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
	log := &testrig.Log{}
	o := Options{Options: model.Options{
		Catalog:   testmodels.Catalog(t, ids, extra...),
		Hub:       testmodels.Hub(t),
		Devices:   []engine.Options{{Threads: 2}},
		Precision: "fp32",
		LoadWait:  time.Minute,
		Metrics:   metrics.New(),
		Log:       slog.New(slog.NewTextHandler(log, nil)),
	}}
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
	return testmodels.Refused(r.T, err, code, status)
}

// All runs requests at the same time and returns the result of each. They share one batch if the
// rig holds it back until all their texts are queued (Held).
func (r *Rig) All(requests ...*Request) (rows [][][]byte, failures []*errs.Error) {
	return testmodels.All(func(q *Request) ([][]byte, error) {
		res, err := r.Encode(r.T.Context(), q)
		if err != nil {
			return nil, err
		}
		return res.Rows, nil
	}, requests)
}

// OfModel reads the gauge or counter of one model.
func (r *Rig) OfModel(name, model string) float64 {
	r.T.Helper()
	return r.Metric(name, model)
}

// Metric reads the gauge or counter that has a label with this value.
func (r *Rig) Metric(name, value string) float64 {
	r.T.Helper()
	v := testrig.Metric(r.T, r.Gatherer(), name, value)
	if v == testrig.NoMetric {
		r.T.Fatalf("no metric %s of %s", name, value)
	}
	return v
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
	return func(o *Options) { testmodels.Held(&o.Batch, n) }
}
