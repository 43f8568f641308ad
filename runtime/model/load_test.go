package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/hub"
)

func (r *rig) describe(id string) *catalog.Resolved {
	r.t.Helper()
	m, err := r.Describe(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func TestLoadFailures(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		class  string
		text   string
	}{
		"missing directory": {func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }, "NOT_FOUND",
			"is not a directory"},
		"empty directory": {func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o755))
		}, "CONFIG", "tokenizer"},
		"no tokenizer":          {remove("tokenizer.json"), "CONFIG", "tokenizer.json"},
		"tokenizer is not JSON": {write("tokenizer.json", "{"), "CONFIG", "tokenizer.json"},
		"no config":             {remove("config.json"), "CONFIG", "config.json"},
		"config is not JSON":    {write("config.json", "{"), "CONFIG", "config.json"},
		"no weights":            {remove("model.safetensors"), "CONFIG", "safetensors"},
		"weights cut off": {func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 5000))
		}, "CONFIG", "model.safetensors"},
		"weights are no safetensors": {write("model.safetensors", strings.Repeat("\xff", 4000)), "CONFIG",
			"model.safetensors"},
		"config disagrees with tensors": {func(t *testing.T, dir string) {
			replace(t, dir, "config.json", `"intermediate_size": `, `"intermediate_size": 1`)
		}, "CONFIG", "intermediate"},
		"unknown architecture": {func(t *testing.T, dir string) {
			replace(t, dir, "config.json", `"model_type": "bert"`, `"model_type": "mamba"`)
		}, "CONFIG", "mamba"},
		"tokenizer larger than the vocabulary": {func(t *testing.T, dir string) {
			replace(t, dir, "tokenizer.json", `"[MASK]": `, `"[EXTRA]": 5000, "[MASK]": `)
		}, "CONFIG", "vocabulary"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyModel(t, "st-mean")
			c.damage(t, dir)
			r := start(t, nil, nil, adHoc(t, "test/damaged", dir))
			for range 2 { // the failure is remembered, and the load is not tried again
				e := r.refused(t.Context(), &Request{Model: "test/damaged", Texts: []string{"a"}},
					errs.ModelLoadFailed, 502)
				if e.Load.Class != c.class || !e.Load.Permanent || e.Load.Attempts != 1 {
					t.Errorf("%+v, want class %s, permanent, one attempt: %v", e.Load, c.class, e)
				}
				if !strings.Contains(e.Message, c.text) || strings.Contains(e.Message, filepath.Dir(dir)) ||
					strings.Contains(e.Message, "/tmp") {
					t.Errorf("text %q: want %q, and no path of the machine", e.Message, c.text)
				}
			}
			st := r.StateOf(r.describe("test/damaged"))
			if st.State != registry.Failed || st.Loaded != nil || st.Failure == nil ||
				st.Failure.Class != c.class || st.Failure.Attempts != 1 || !st.Failure.Permanent ||
				strings.Contains(st.Failure.Cause, filepath.Dir(dir)) {
				t.Errorf("%+v with %+v", st, st.Failure)
			}
			if err := r.Preload(t.Context(), "test/damaged"); err == nil ||
				!strings.Contains(err.Error(), "test/damaged") {
				t.Errorf("preload: %v", err)
			}
		})
	}
}

func TestClassesOfLoadErrors(t *testing.T) {
	for _, c := range []struct {
		err       error
		class     string
		permanent bool
	}{
		{&hub.Error{Class: hub.ClassGated}, "GATED", true},
		{&hub.Error{Class: hub.ClassNetwork}, "NETWORK", false},
		{&engine.Error{Status: engine.StatusNoMemory}, "OOM", false},
		{&fs.PathError{Op: "open", Path: "/models/x/config.json", Err: fs.ErrPermission}, "STORAGE", false},
		{&fs.PathError{Op: "open", Path: "/models/x/config.json", Err: fs.ErrNotExist}, "CONFIG", true},
		{&arch.ModelError{File: "config.json", Reason: "is odd"}, "CONFIG", true},
		{&weights.FormatError{}, "CONFIG", true},
		{tokenizerError{errors.New("no merges")}, "CONFIG", true},
		{tokenizerError{fs.ErrPermission}, "STORAGE", false},
		{&shortage{}, "OOM", false},
		{&shortage{neverFits: true}, "PLACEMENT", false},
		{context.DeadlineExceeded, "TIMEOUT", false},
		{&fs.PathError{Op: "read", Path: "/models/x/model.safetensors", Err: syscall.EIO}, "STORAGE", false},
		{&os.SyscallError{Syscall: "write", Err: syscall.ENOSPC}, "STORAGE", false},
		{&engine.Error{Status: engine.StatusUnsupported}, "DEPENDENCY", true},
		{&engine.Error{Status: engine.StatusInternal}, "ENGINE", false},
		{errors.New("something"), "UNKNOWN", false},
	} {
		if class, permanent := classify(fmt.Errorf("load: %w", c.err)); class != c.class ||
			permanent != c.permanent {
			t.Errorf("%v: %s, permanent %v; want %s, %v", c.err, class, permanent, c.class, c.permanent)
		}
	}
	missing := &fs.PathError{Op: "open", Path: "/models/x/config.json", Err: fs.ErrNotExist}
	if got := publicCause(missing); got != "the file config.json is missing from the model directory" {
		t.Errorf("got %q", got)
	}
	fault := fmt.Errorf("load: %w", &guard.Panic{Value: "index out of range", Stack: []byte("main.go:7")})
	if got := publicCause(fault); got != "a fault of the server, which its log has" {
		t.Errorf("of a panic clients are told %q", got)
	}
	for in, want := range map[string]string{
		"open /home/u/models/config.json: denied":       "open config.json: denied",
		`read "/home/u/models/config.json": denied`:     `read "config.json": denied`,
		"org/name is gated, see https://h.co/org/name/": "org/name is gated, see https://h.co/org/name/",
		"tensor a/b has and/or":                         "tensor a/b has and/or",
		"/home/u/models/, then":                         "models/, then",
	} {
		if got := withoutPaths(in); got != want {
			t.Errorf("withoutPaths(%q) = %q, want %q", in, got, want)
		}
	}
}

// A cold request waits for its model for LoadWait; the load goes on after that.
func TestColdLoad(t *testing.T) {
	r := start(t, func(o *Options) { o.LoadWait = 50 * time.Millisecond }, []string{mean, cls})
	release := make(chan struct{})
	busy := make(chan struct{})
	go func() { // loads run one at a time: this one delays those of the test
		_, _ = r.models.Acquire(context.Background(), "blocker",
			registry.Load[*Model]{Pack: func(context.Context) (*Model, error) {
				close(busy)
				<-release
				return nil, errors.New("released")
			}})
	}()
	<-busy
	began := time.Now()
	e := r.refused(t.Context(), &Request{Model: mean, Texts: []string{"a"}}, errs.ModelLoading, 503)
	if took := time.Since(began); took < 40*time.Millisecond || e.RetryAfter < time.Second {
		t.Errorf("MODEL_LOADING after %v, retry after %v", took, e.RetryAfter)
	}
	if r.state(mean) != registry.Loading {
		t.Errorf("state %s while it loads", r.state(mean))
	}
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if _, err := r.Encode(ctx, &Request{Model: mean, Texts: []string{"a"}}); err != left {
		t.Errorf("a client that leaves during a load: %v", err)
	}
	close(release)
	testrig.Until(r.t, "the model is loaded", func() bool { return r.state(mean) == registry.Loaded })
	r.vectors(mean, "a")
	if r.loads(mean) != 1 {
		t.Errorf("%d loads", r.loads(mean))
	}
}

func TestManyColdRequestsLoadOnce(t *testing.T) {
	r := start(t, nil, []string{mean})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := r.Encode(t.Context(), &Request{Model: mean, Texts: []string{"a"}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if r.loads(mean) != 1 {
		t.Errorf("%d loads", r.loads(mean))
	}
	st := r.StateOf(r.describe(mean))
	if l := st.Loaded; st.State != registry.Loaded || l == nil || l.Dim != 32 || l.MaxTokens != 40 ||
		l.Bytes == 0 || !l.First || r.MaxBatchItems() != 64 {
		t.Errorf("%+v, %+v", st, st.Loaded)
	}
}

// Before a load, models that are not in use are unloaded while memory is short; those in use are
// not.
func TestUnloadUnderMemoryPressure(t *testing.T) {
	r := start(t, held(3), []string{mean, cls, prompts})
	short := false
	var mu sync.Mutex
	r.memory = func() memory {
		mu.Lock()
		defer mu.Unlock()
		if short {
			return memory{used: 99 << 30, total: 100 << 30}
		}
		return memory{used: 1 << 30, total: 100 << 30}
	}
	r.encode(&Request{Model: mean, Texts: words(3)})
	r.encode(&Request{Model: cls, Texts: words(3)})
	if r.state(mean) != registry.Loaded || r.state(cls) != registry.Loaded ||
		r.ofModel("sie_model_loaded", mean) != 1 {
		t.Fatal("with memory to spare both models stay")
	}
	var tok *tokenizer.Tokenizer
	r.models.Each(func(key string, m *Model) {
		if m.name == mean {
			tok = m.tokenizer
		}
	})
	done := make(chan error, 1)
	go func() { // two of three items: it stays in the queue and holds its model
		_, err := r.Encode(t.Context(), &Request{Model: cls, Texts: words(2)})
		done <- err
	}()
	r.queued(cls, 2)
	mu.Lock()
	short = true
	mu.Unlock()
	r.encode(&Request{Model: prompts, Texts: words(3)})
	if r.state(mean) != registry.Available || r.state(cls) != registry.Loaded {
		t.Errorf("mean is %s and cls, which is in use, %s", r.state(mean), r.state(cls))
	}
	if r.ofModel("sie_model_loaded", mean) != 0 || r.ofModel("sie_model_memory_bytes", mean) != 0 ||
		r.ofModel("sie_model_loaded", cls) != 1 {
		t.Error("the gauges do not show it")
	}
	if err := tok.EncodeParallel(t.Context(), new(tokenizer.Batch), []string{"a"},
		tokenizer.Options{}); !errors.Is(err, tokenizer.ErrClosed) {
		t.Errorf("the unloaded model's tokenizer answers %v", err)
	}
	if _, err := r.Encode(t.Context(), &Request{Model: cls, Texts: words(1)}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.encode(&Request{Model: mean, Texts: words(3)})
	if r.loads(mean) != 2 {
		t.Errorf("%d loads of a model that was unloaded and asked for again", r.loads(mean))
	}
}

// A profile in float32 has separate weights if and only if float32 is not the device's default.
func TestFloat32Profile(t *testing.T) {
	m := family(t, "test/family", golden.Open(t, "st-mean").Dir,
		"  exact: {extends: default, compute_precision: float32}\n")
	r := start(t, func(o *Options) { o.Precision = "auto" }, []string{mean}, m)
	exact, own := r.describe("test/family:exact"), r.describe("test/family")
	r.vectors(own.ID, "a")
	v := r.vectors(exact.ID, "the cat sat on the mat")[0]
	if (r.key(exact) == r.key(own)) != (r.Devices()[0].DefaultCompute() == engine.ComputeF32) {
		t.Errorf("keys %q and %q on a device whose best is %v",
			r.key(exact), r.key(own), r.Devices()[0].DefaultCompute())
	}
	r32 := start(t, nil, []string{mean})
	if d := golden.Compare(v, r32.vectors(mean, "the cat sat on the mat")[0]); d.MaxAbs != 0 {
		t.Errorf("the float32 profile differs from float32: %v", d)
	}
	if _, err := r.opt.Metrics.Registry.Gather(); err != nil {
		t.Errorf("metrics with two copies: %v", err)
	}
}

func TestUnknownPrecision(t *testing.T) {
	r := start(t, func(o *Options) { o.Precision = "fp64" }, []string{mean})
	e := r.refused(t.Context(), &Request{Model: mean, Texts: []string{"a"}}, errs.ModelLoadFailed, 502)
	if !strings.Contains(e.Message, "fp64") {
		t.Errorf("%v", e)
	}
}

func TestClosedWorker(t *testing.T) {
	r := start(t, nil, []string{mean})
	r.models.Close()
	r.refused(t.Context(), &Request{Model: mean, Texts: []string{"a"}}, errs.Draining, 503)
}

// ofModel reads a gauge or counter of one model.
func (r *rig) ofModel(name, model string) float64 {
	r.t.Helper()
	return r.metric(name, model)
}

// metric reads the gauge or counter that has a label with this value.
func (r *rig) metric(name, value string) float64 {
	r.t.Helper()
	v := testrig.Metric(r.t, r.opt.Metrics.Registry, name, value)
	if v == testrig.NoMetric {
		r.t.Fatalf("no metric %s of %s", name, value)
	}
	return v
}

// counted waits until the counter of a model has that value. What a batch came to is counted when
// its last answer is out, so a caller that has the answer may be earlier.
func (r *rig) counted(name, model string, want float64) {
	r.t.Helper()
	testrig.Until(r.t, fmt.Sprintf("%s of %s is %v", name, model, want), func() bool {
		return testrig.Metric(r.t, r.opt.Metrics.Registry, name, model) == want
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func remove(file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, file))) }
}

func write(file, content string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
	}
}
