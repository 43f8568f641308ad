package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// Ask answers a request with the layer above this package, which these tests may not import. Tasks
// is that layer's table.
var (
	Ask   func(context.Context, *Host, *Request) (*Result, error)
	Tasks map[catalog.Family]arch.Task
)

// Request is a request of the tests to the layer above. With Query it asks for scores, with Extract
// for entities or classes.
type Request struct {
	Model       string
	Query       string
	Extract     bool
	Texts       []string
	Tokens      [][]int32
	Labels      []string
	Options     map[string]any
	OutputTypes []string
	OutputDType string
	IsQuery     *bool
}

// Result holds the parts of an answer that tests read.
type Result struct {
	Rows     [][]byte
	Sparse   [][2][]byte // columns and values
	Multi    [][]byte
	Scores   []float64
	Entities [][]api.Entity
	Classes  [][]api.Class
	Errors   []*errs.Error
	Dims     int
	Tokens   int
}

const (
	mean    = testmodels.Mean
	cls     = testmodels.CLS
	prompts = testmodels.Prompts
)

var (
	dirs          = testmodels.Dirs
	adHoc         = testmodels.AdHoc
	family        = testmodels.Family
	float32s      = testmodels.Float32s
	words         = testmodels.Words
	copyModel     = testmodels.CopyModel
	replace       = testmodels.Replace
	loadtime      = testmodels.Loadtime
	withTokenizer = testmodels.WithTokenizer
	entry         = testmodels.Entry
	adapted       = testmodels.Adapted
	shrink        = testmodels.Shrink
)

func untilLoaded[R any](t *testing.T, ask func() (R, error)) (R, error) {
	t.Helper()
	return testmodels.UntilLoaded(t, ask)
}

// rig is a host with tiny models, and its log.
type rig struct {
	*Host
	t   *testing.T
	log *testrig.Log
}

// start opens a host with one ad-hoc model for each of ids and with extra. It is closed with the
// test, which fails when goroutines are left over.
func start(t *testing.T, change func(*Options), ids []string, extra ...*catalog.Model) *rig {
	t.Helper()
	leftOver := testrig.Goroutines(t)
	log := &testrig.Log{}
	// Tests replace a device's memory function; the monitor must not call it before they have done
	// so.
	o := Options{
		watch: time.Hour, Catalog: testmodels.Catalog(t, ids, extra...), Tasks: Tasks, Hub: testmodels.Hub(t),
		Devices: []engine.Options{{Threads: 2}}, Precision: "fp32", LoadWait: time.Minute,
		Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(log, nil)),
	}
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
	return &rig{w, t, log}
}

// Encode, Score and Extract answer a request.
func (r *rig) Encode(ctx context.Context, q *Request) (*Result, error) { return Ask(ctx, r.Host, q) }

// encode runs a request that must succeed and returns its rows.
func (r *rig) encode(q *Request) [][]byte {
	r.t.Helper()
	res, err := r.Encode(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Rows
}

// vectors returns the float32 rows of texts.
func (r *rig) vectors(model string, texts ...string) [][]float32 {
	r.t.Helper()
	return float32s(r.encode(&Request{Model: model, Texts: texts}))
}

// refused runs a request that must fail with that code and status, and returns the error.
func (r *rig) refused(ctx context.Context, q *Request, code errs.Code, status int) *errs.Error {
	r.t.Helper()
	_, err := r.Encode(ctx, q)
	return testmodels.Refused(r.t, err, code, status)
}

// all runs requests concurrently and returns their results. They share one batch if the rig holds
// the batch until all texts are queued.
func (r *rig) all(requests ...*Request) (rows [][][]byte, failures []*errs.Error) {
	return testmodels.All(func(q *Request) ([][]byte, error) {
		res, err := r.Encode(r.t.Context(), q)
		if err != nil {
			return nil, err
		}
		return res.Rows, nil
	}, requests)
}

// loads counts the successful loads of id.
func (r *rig) loads(id string) int {
	return strings.Count(r.log.String(), `msg="model ready" model=`+id+" ")
}

// queued waits until n items are queued for id.
func (r *rig) queued(id string, n int) {
	r.t.Helper()
	testrig.Until(r.t, fmt.Sprintf("%d items are queued", n), func() bool {
		got := 0
		r.models.Each(func(key string, m *Model) {
			if m.name == id {
				got = m.Queued()
			}
		})
		return got == n
	})
}

func (r *rig) state(id string) registry.State {
	return r.models.Get(r.key(r.describe(id))).State
}

// size returns the bytes of a loaded model's packed weights.
func (r *rig) size(id string) int64 { return r.models.Get(r.key(r.describe(id))).Bytes }

// held keeps items in the queue until n items wait.
func held(n int) func(*Options) { return func(o *Options) { testmodels.Held(&o.Batch, n) } }
