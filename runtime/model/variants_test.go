package model

import (
	"maps"
	"testing"
)

// The number of a model's variants is bounded: existing ones are still returned, a new one is
// refused.
func TestMaxPrograms(t *testing.T) {
	r := start(t, nil, []string{mean})
	r.encode(&Request{Model: mean, Texts: words(1)})
	m := r.copy(mean)
	own := m.weights.Own()
	all := maps.Clone(*m.variants.Load())
	for i := range maxVariants {
		w := own
		w.SMVE.Seed = int64(i) // any distinct value will do
		if all[w] == nil && len(all) < maxVariants {
			all[w] = all[own]
		}
	}
	before := m.variants.Swap(&all)
	if _, err := m.Variant(own); err != nil {
		t.Error(err)
	}
	own.Pooling = 1 + own.Pooling%2
	if _, err := m.Variant(own); err != errTooManyVariants {
		t.Errorf("one more: %v", err)
	}
	m.variants.Store(before)
}
