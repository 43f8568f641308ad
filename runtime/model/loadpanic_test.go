package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// A fault that the files of one model reach while they are packed fails its load, for good, and no
// other model. The log has the stack; clients are told no more than that it is there.
func TestPanicWhileAModelIsPacked(t *testing.T) {
	r := start(t, nil, []string{mean, cls})
	want := r.encode(&Request{Model: cls, Texts: []string{"a"}})
	sound := r.devices
	r.devices = append(slices.Clip(sound), &device{name: "broken", runner: sound[0].runner}) // no engine
	for range 2 {
		e := r.refused(t.Context(), &Request{Model: mean, Texts: []string{"a"}}, errs.ModelLoadFailed, 502)
		if !e.Load.Permanent || e.Load.Attempts != 1 ||
			!strings.Contains(e.Message, "a fault of the server") ||
			strings.Contains(e.Message, "nil pointer") {
			t.Errorf("%+v: %v", e.Load, e)
		}
	}
	r.devices = sound
	if text := r.log.String(); strings.Count(text, "panic while a model was loaded") != 1 ||
		!strings.Contains(text, "arch.Load") {
		t.Errorf("the log does not have the stack once:\n%s", text)
	}
	got := r.encode(&Request{Model: cls, Texts: []string{"a"}})
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Error("another model answers otherwise")
	}
	r.models.Unload(r.key(r.describe(mean)))
	r.encode(&Request{Model: mean, Texts: []string{"a"}})
}
