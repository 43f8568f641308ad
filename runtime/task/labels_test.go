package task_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// Hypotheses are made as they are read, so many labels with a long template do not fill the memory
// at once.
func TestManyLabelsWithALongTemplate(t *testing.T) {
	stop := errors.New("stop")
	r := start(t, func(o *Options) { o.Intercept = func(*engine.Batch) error { return stop } }, nil, entry(t,
		"nli", golden.Open(t, "pipeline-zero-shot").Dir, "nli_classification", "tasks: {extract: {}}"))
	if err := r.Preload(t.Context(), "nli"); err != nil {
		t.Fatal(err)
	}
	labels := slices.Repeat([]string{"a"}, 1000)
	texts := slices.Repeat([]string{"the text"}, 60)
	for _, policy := range []string{"default", "error"} {
		ask := func(template string) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := r.Extract(t.Context(), &ExtractRequest{
				Model:   "nli",
				Texts:   texts,
				Labels:  labels,
				Options: map[string]any{"hypothesis_template": template, "overflow_policy": policy},
			})
			runtime.ReadMemStats(&after)
			if e := errs.As(err); e == nil || e.Code != errs.InferenceError && e.Param != "params.labels[0]" {
				t.Fatal(err)
			}
			return after.TotalAlloc - before.TotalAlloc
		}
		if n := ask(strings.Repeat("x ", 8000) + "{}"); n > 400<<20 {
			t.Errorf("%s: %d MiB for the first of %d pairs", policy, n>>20, len(texts)*len(labels))
		}
	}
}
