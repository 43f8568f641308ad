package task_test

import (
	"errors"
	"fmt"
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
	labels := make([]string, 1000)
	for i := range labels {
		labels[i] = fmt.Sprint("a", i)
	}
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

// A label is named once and has at most 128 characters, which are not bytes. A label with spaces
// around it is another one: hypotheses have them.
func TestZeroShotRefusesLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "nli", golden.Open(t, "pipeline-zero-shot").Dir, "nli_classification",
		"tasks: {extract: {}}"))
	for _, c := range []struct {
		labels []string
		want   string // "" for an answer
	}{
		{[]string{"sea", "cat", "sea"},
			`params.labels[2] "sea" is params.labels[0] again; name each label once`},
		{[]string{"sea", strings.Repeat("é", 129)},
			"params.labels[1] has 129 characters; a label may have at most 128 (max_label_chars): shorten it"},
		{[]string{"sea", "\t"}, "params.labels[1] is blank; name what is to be found"},
		{[]string{"sea", strings.Repeat("é", 128)}, ""},
		{[]string{"sea", " sea", "Sea"}, ""},
	} {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Texts: []string{"the cat"},
			Labels: c.labels})
		if c.want == "" {
			if err != nil || len(res.Found[0].Classes) != len(c.labels) {
				t.Errorf("%.40q: %+v, %v", c.labels, res, err)
			}
			continue
		}
		if e := errs.As(err); err == nil || e.Status != 400 || e.Param != "params.labels" ||
			e.Message != c.want {
			t.Errorf("%.40q: %v, want %q", c.labels, err, c.want)
		}
	}
}
