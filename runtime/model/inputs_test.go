package model

import (
	"errors"
	"reflect"
	"testing"

	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// Every input that a batch has reaches the device, under its own name.
func TestInputsReachTheDevice(t *testing.T) {
	var got *engine.Batch
	stop := errors.New("stop")
	r := start(t, nil, []string{mean})
	r.encode(&Request{Model: mean, Texts: words(1)})
	r.opt.Intercept = func(b *engine.Batch) error {
		got = b
		return stop
	}
	m := r.copy(mean)
	v, err := m.Variant(m.weights.Own())
	if err != nil {
		t.Fatal(err)
	}
	p := &batch.Packed{
		CuSeqlens: []int32{0, 2}, Queries: []float32{1}, CuQueries: []int32{0, 1}, Partner: []int32{0},
	}
	inputs := reflect.ValueOf(&p.Inputs).Elem()
	for i := range inputs.NumField() {
		f := inputs.Field(i)
		f.Set(reflect.MakeSlice(f.Type(), 2, 2))
	}
	if _, err := (batchRunner{model: m, variant: v}).RunPacked(t.Context(), 0, p); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	arrived := reflect.ValueOf(got).Elem()
	check := func(fields reflect.Value, names ...string) {
		for _, name := range names {
			if have, want := arrived.FieldByName(name), fields.FieldByName(name); !have.IsValid() ||
				have.Type() != want.Type() || have.Pointer() != want.Pointer() || have.Len() == 0 {
				t.Errorf("the input %s does not arrive", name)
			}
		}
	}
	for i := range inputs.NumField() {
		check(inputs, inputs.Type().Field(i).Name)
	}
	check(reflect.ValueOf(p).Elem(), "CuSeqlens", "Queries", "CuQueries", "Partner")
}
