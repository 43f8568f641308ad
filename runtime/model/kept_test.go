package model

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/runtime/registry"
)

// labels is a value that a model keeps and counts.
type labels struct {
	of    *Model
	has   atomic.Int64
	drops atomic.Int64
}

func (k *labels) Drop() {
	k.of.CountKept(-k.has.Swap(0))
	k.drops.Add(1)
}

func (k *labels) add(n int64) {
	k.has.Add(n)
	k.of.CountKept(n)
}

// keep has a loaded model keep n bytes.
func keep(l *Model, n int64) *labels {
	k := l.Keep("labels", func() any { return &labels{of: l} }).(*labels)
	k.add(n)
	return k
}

// The budget has room for two models. What one of them keeps takes the place of the other: it gives
// that up before any model is unloaded.
func TestKeptValuesGiveWayToModels(t *testing.T) {
	meanBytes, meanSize, _ := sizes(t, mean)
	clsBytes, clsSize, _ := sizes(t, cls)
	budget := max(meanBytes, meanSize) + max(clsBytes, clsSize)
	r := start(t, func(o *Options) { o.MemoryBudget = budget }, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	l := r.copy(mean)
	if room := l.RoomForKept(); l.Bytes() != meanBytes || room != budget-meanBytes {
		t.Errorf("%d bytes and room for %d, want %d and %d", l.Bytes(), room, meanBytes, budget-meanBytes)
	}
	k := keep(l, budget-meanBytes)
	if room := l.RoomForKept(); l.Bytes() != budget || room != 0 {
		t.Errorf("%d bytes and room for %d, want %d and 0", l.Bytes(), room, budget)
	}
	r.encode(&Request{Model: cls, Texts: words(1)})
	if r.state(mean) != registry.Loaded || k.drops.Load() != 1 || l.Bytes() != meanBytes {
		t.Errorf("mean is %s with %d bytes, and dropped %d times", r.state(mean), l.Bytes(), k.drops.Load())
	}
	if room := l.RoomForKept(); room != budget-meanBytes-clsBytes {
		t.Errorf("room for %d bytes beside two models", room)
	}
}

// A model with kept values that do not give way is unloaded with them.
func TestKeptValuesGoWithTheirModel(t *testing.T) {
	meanBytes, meanSize, _ := sizes(t, mean)
	clsBytes, clsSize, _ := sizes(t, cls)
	budget := max(meanBytes, meanSize) + max(clsBytes, clsSize)
	r := start(t, func(o *Options) { o.MemoryBudget = budget }, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	r.copy(mean).CountKept(budget)
	r.encode(&Request{Model: cls, Texts: words(1)})
	if r.state(mean) != registry.Available || r.models.Bytes() != clsBytes {
		t.Errorf("mean is %s; %d bytes, want %d", r.state(mean), r.models.Bytes(), clsBytes)
	}
}

// Kept values lie in the host's memory: a GPU's budget does not count them, nor does any other
// bound.
func TestKeptValuesAreInHostMemory(t *testing.T) {
	r := start(t, nil, []string{mean})
	r.encode(&Request{Model: mean, Texts: words(1)})
	l := r.copy(mean)
	if l.RoomForKept() != math.MaxInt64 {
		t.Errorf("room for %d bytes without a budget", l.RoomForKept())
	}
	packed := l.Bytes()
	l.CountKept(1000)
	if l.Bytes() != packed+1000 {
		t.Errorf("%d bytes on a CPU, want %d", l.Bytes(), packed+1000)
	}
	r.gpuMemory(1 << 30)
	r.opt.MemoryBudget = packed
	if l.Bytes() != packed || l.RoomForKept() != math.MaxInt64 {
		t.Errorf("%d bytes on a GPU, want %d; room for %d", l.Bytes(), packed, l.RoomForKept())
	}
}
