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
		CuWords: []int32{0, 1}, CuMarkers: []int32{0, 2}, CuSpans: []int32{0, 3},
	}
	inputs, places := reflect.ValueOf(&p.Inputs).Elem(), reflect.TypeFor[batch.Places]()
	for i := range inputs.NumField() {
		f := inputs.Field(i)
		if f.Type() == places {
			f.Set(reflect.ValueOf(batch.Places{First: make([]int32, 2), Last: make([]int32, 2)}))
			continue
		}
		f.Set(reflect.MakeSlice(f.Type(), 2, 2))
	}
	if _, err := (batchRunner{model: m, variant: v}).RunPacked(t.Context(), 0, p); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	arrived := reflect.ValueOf(got).Elem()
	same := func(have, want reflect.Value) bool {
		return have.IsValid() && have.Type() == want.Type() && have.Pointer() == want.Pointer() &&
			have.Len() > 0
	}
	check := func(fields reflect.Value, names ...string) {
		for _, name := range names {
			if !same(arrived.FieldByName(name), fields.FieldByName(name)) {
				t.Errorf("the input %s does not arrive", name)
			}
		}
	}
	for i := range inputs.NumField() {
		name := inputs.Type().Field(i).Name
		if inputs.Field(i).Type() != places {
			check(inputs, name)
			continue
		}
		rows, want := arrived.FieldByName(name), inputs.Field(i)
		if cu := reflect.ValueOf(p).Elem().FieldByName("Cu" + name); !same(rows.FieldByName("Cu"), cu) ||
			!same(rows.FieldByName("First"), want.FieldByName("First")) ||
			name != "Markers" && !same(rows.FieldByName("Last"), want.FieldByName("Last")) {
			t.Errorf("the places of %s do not arrive", name)
		}
	}
	check(reflect.ValueOf(p).Elem(), "CuSeqlens", "Queries", "CuQueries", "Partner")
}
