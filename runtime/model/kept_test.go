package model

import (
	"math"
	"runtime"
	"sync"
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

// While a model is loaded a request keeps labels again, in the room that was made for it. They give
// way once more: the budget holds when both models are loaded.
func TestKeptValuesGiveWayWhenALoadEnds(t *testing.T) {
	meanBytes, meanSize, _ := sizes(t, mean)
	clsBytes, clsSize, _ := sizes(t, cls)
	budget := max(meanBytes, meanSize) + max(clsBytes, clsSize)
	r := start(t, func(o *Options) { o.MemoryBudget = budget }, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	l := r.copy(mean)
	k := keep(l, budget-meanBytes)
	r.memory = func() memory { // is read where the budget has room
		if k.drops.Load() > 0 && k.has.Load() == 0 {
			k.add(budget - meanBytes)
		}
		return memory{}
	}
	r.encode(&Request{Model: cls, Texts: words(1)})
	drops := k.drops.Load()
	if r.state(mean) != registry.Loaded || r.models.Bytes() != meanBytes+clsBytes || drops < 2 {
		t.Errorf("mean is %s; %d bytes, want %d; dropped %d times", r.state(mean), r.models.Bytes(),
			meanBytes+clsBytes, drops)
	}
	// Labels that leave a loaded model its room stay.
	k.add(budget - meanBytes - clsBytes)
	if got := r.models.Bytes(); got != budget || k.drops.Load() != drops {
		t.Errorf("%d bytes, want %d; dropped %d times more", got, budget, k.drops.Load()-drops)
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

// A budget is that of each device. What is kept lies in the memory of all.
func TestRoomForKeptValuesOfSeveralDevices(t *testing.T) {
	const budget = 1 << 30
	r := start(t, func(o *Options) {
		two(o)
		o.MemoryBudget = budget
	}, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	l := r.copy(mean)
	if l.RoomForKept() != 2*budget-l.Bytes() {
		t.Errorf("room for %d bytes beside %d, with %d for each of two devices", l.RoomForKept(), l.Bytes(),
			budget)
	}
	k := keep(l, 2*budget-l.Bytes()-(1<<24))
	r.encode(&Request{Model: cls, Texts: words(1)})
	if k.drops.Load() != 0 {
		t.Error("what is kept gives way to a model that has room")
	}
}

// stubborn does not give up what it counts when it is told to, or only after many times.
type stubborn struct {
	of    *Model
	bytes int64
	drops atomic.Int64
}

func (s *stubborn) Drop() {
	if s.drops.Add(1) == 100 {
		s.of.CountKept(-s.bytes)
	}
}

// Values are told once to give way; where that makes no room, models are unloaded.
func TestKeptValuesThatStayDelayNoLoad(t *testing.T) {
	meanBytes, meanSize, _ := sizes(t, mean)
	clsBytes, clsSize, _ := sizes(t, cls)
	budget := max(meanBytes, meanSize) + max(clsBytes, clsSize)
	r := start(t, func(o *Options) { o.MemoryBudget = budget }, []string{mean, cls})
	r.encode(&Request{Model: mean, Texts: words(1)})
	l := r.copy(mean)
	s := l.Keep("labels", func() any { return &stubborn{of: l, bytes: budget} }).(*stubborn)
	l.CountKept(s.bytes)
	r.encode(&Request{Model: cls, Texts: words(1)})
	if r.state(mean) != registry.Available || r.models.Bytes() != clsBytes || s.drops.Load() != 1 {
		t.Errorf("mean is %s; %d bytes, want %d; told %d times to give way", r.state(mean), r.models.Bytes(),
			clsBytes, s.drops.Load())
	}
}

// All that can give way does, whatever else models keep; a model that keeps no bytes is left alone.
func TestAllKeptValuesGiveWay(t *testing.T) {
	r := start(t, nil, []string{mean, cls, prompts})
	var all []*labels
	for _, id := range []string{mean, cls, prompts} {
		r.encode(&Request{Model: id, Texts: words(1)})
		for i := range 8 {
			r.copy(id).Keep(i, func() any { return i })
		}
		all = append(all, keep(r.copy(id), 10))
	}
	all[2].add(-10)
	for i, want := range []bool{true, false} {
		if r.dropKept() != want {
			t.Errorf("call %d: dropped is not %t", i, want)
		}
	}
	for i, k := range all {
		if want := int64(1 - i/2); k.has.Load() != 0 || k.drops.Load() != want {
			t.Errorf("model %d keeps %d bytes and was dropped %d times, want %d", i, k.has.Load(),
				k.drops.Load(), want)
		}
	}
}

// A value is made once for a key, whoever asks at once. Two ask within nanoseconds of each other,
// so that both find nothing in some of the rounds.
func TestKeptValuesAreMadeOnce(t *testing.T) {
	l := &Model{}
	for key := range 20000 {
		var made, here atomic.Int64
		var got [2]any
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				for here.Add(1); here.Load() < 2; {
					runtime.Gosched()
				}
				got[i] = l.Keep(key, func() any {
					made.Add(1)
					return key
				})
			})
		}
		all.Wait()
		if got != [2]any{key, key} || made.Load() != 1 {
			t.Fatalf("key %d: %v, made %d times", key, got, made.Load())
		}
	}
}
