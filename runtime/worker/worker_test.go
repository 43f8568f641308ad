package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
)

// The tiny models of the tests: ids of catalog entries over directories of testdata/golden.
const (
	mean    = "test/mean"    // mean pooling, not normalised, 32 wide
	cls     = "test/cls"     // cls pooling, normalised, 32 wide
	prompts = "test/prompts" // dense layer, normalised, prompts, 20 wide
)

var dirs = map[string]string{mean: "st-mean", cls: "st-cls-normalize", prompts: "st-mean-dense-tanh-normalize-prompts"}

// rig is a worker over tiny models and what it logged.
type rig struct {
	*Worker
	t   *testing.T
	log *testrig.Log
}

// start opens a worker with one ad-hoc model for each of ids and with extra. It is closed with the test, which fails when
// goroutines are left over.
func start(t *testing.T, change func(*Options), ids []string, extra ...*catalog.Model) *rig {
	t.Helper()
	leftOver := testrig.Goroutines(t)
	models := extra
	for _, id := range ids {
		models = append(models, adHoc(t, id, golden.Open(t, dirs[id]).Dir))
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
	o := Options{Catalog: c, Hub: h, Devices: []engine.Options{{Threads: 2}}, Precision: "fp32", LoadWait: time.Minute,
		Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(log, nil))}
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

func adHoc(t *testing.T, id, dir string) *catalog.Model {
	t.Helper()
	m, err := catalog.AdHoc(id, catalog.AdHocInfo{WeightsPath: dir})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// family is a model file over dir whose profiles, in YAML, stand at the end.
func family(t *testing.T, id, dir, profiles string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
tasks: {encode: {dense: {dim: 32}}}
max_sequence_length: 40
profiles:
  default: {adapter_path: "sie_server.adapters.sentence_transformer:X", max_batch_tokens: 4096}
%s`, id, dir, profiles))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// encode runs a request that must succeed and returns its rows.
func (r *rig) encode(q *Request) [][]byte {
	r.t.Helper()
	res, err := r.Encode(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Rows
}

// vectors are the float32 rows of texts.
func (r *rig) vectors(model string, texts ...string) [][]float32 {
	r.t.Helper()
	return float32s(r.encode(&Request{Model: model, Texts: texts}))
}

// refused runs a request that must fail with that code and status, and returns the error.
func (r *rig) refused(ctx context.Context, q *Request, code errs.Code, status int) *errs.Error {
	r.t.Helper()
	_, err := r.Encode(ctx, q)
	e := errs.As(err)
	if e == nil || e.Code != code || e.Status != status {
		r.t.Fatalf("got %v, want %s with status %d", err, code, status)
	}
	return e
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
		r.models.Each(func(key string, m *model) {
			if m.name == id {
				got = m.queued()
			}
		})
		return got == n
	})
}

func (r *rig) state(id string) registry.State {
	m, err := r.Describe(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.models.Get(r.key(m)).State
}

// held keeps items in the queue: no batch leaves before n items wait.
func held(n int) func(*Options) {
	return func(o *Options) {
		o.Batch.MaxRequests, o.Batch.Adaptive.Disabled = n, true
		o.Batch.MaxWait, o.Batch.Coalesce, o.Batch.IdleCoalesce = time.Hour, time.Hour, time.Hour
		o.Batch.CoalesceRatio = 1
	}
}

func float32s(rows [][]byte) [][]float32 {
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row)/4)
		for j := range out[i] {
			out[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:]))
		}
	}
	return out
}

func norm(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// words are n different texts of 1 to 25 words, within the test models' vocabulary.
func words(n int) []string {
	vocab := strings.Fields("the cat sat on a mat what is tallest mountain in world and how tall it really when one counts from sea floor zebra quiz")
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for j, x := 0, i; j <= i*7%25 || x > 0; j++ {
			b.WriteString(vocab[(x+j)%len(vocab)] + " ")
			x /= len(vocab)
		}
		out[i] = b.String()
	}
	return out
}

// copyModel copies a golden directory so that a test may change it.
func copyModel(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, name).Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replace changes a file of a copied model.
func replace(t *testing.T, dir, file, old, new string) {
	t.Helper()
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s has no %s", file, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
