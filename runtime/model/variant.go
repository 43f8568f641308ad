package model

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// Variant is a recorded program over a model's weights, and its queue.
type Variant struct {
	Want     arch.Want         // what it gives
	Outputs  []arch.Output     // of Want, in their order
	Queue    *batch.Queue      // of its items
	programs []*engine.Program // on each device
	owned    bool              // recorded here, not with the weights

	set       *adaptedSet   // the programs with adapters, if any; guarded by the model's loras.mu
	recording chan struct{} // closed when the next set is recorded; nil when none is; guarded like set

	// Room is how many columns a sparse result gets room for at first; it grows with what is seen.
	Room atomic.Int32
}

// firstRoom is how many columns a sparse result has room for before any has been seen.
const firstRoom = 1024

// Grow notes that a sparse result of n columns was seen.
func (v *Variant) Grow(n int) {
	for {
		have := v.Room.Load()
		if int(have) >= n || v.Room.CompareAndSwap(have, int32(n+n/4)) {
			return
		}
	}
}

// MaxQueryRows is how many rows the queries of one batch may have together.
func (v *Variant) MaxQueryRows() int { return int(v.programs[0].Caps().MaxQueryRows) }

// errTooManyVariants is for a model that is asked for more than that.
var errTooManyVariants = fmt.Errorf("model: more than %d different outputs in use", maxVariants)

// maxVariants bounds the programs over one set of weights. There are a few outputs and poolings,
// and what a catalog's profiles fold; requests cannot ask for more than that.
const maxVariants = 64

// variants are those of a model by what they give. A map that readers have is never changed.
type variants map[arch.Want]*Variant

// making is a variant that is being recorded.
type making struct {
	done    chan struct{} // closed when it is there, or failed
	variant *Variant
	err     error
}

// Variant returns the program that gives what is wanted, recording it on first use. Callers that
// want the same share one recording; no lock is held meanwhile.
func (l *Model) Variant(want arch.Want) (*Variant, error) {
	if want.Dense && want.Pooling == 0 {
		want.Pooling = l.weights.Pooling
	}
	if v := (*l.variants.Load())[want]; v != nil {
		return v, nil
	}
	l.mu.Lock()
	have := *l.variants.Load()
	if v := have[want]; v != nil {
		l.mu.Unlock()
		return v, nil
	}
	if m := l.making[want]; m != nil {
		l.mu.Unlock()
		lockorder.None("waiting for a recording")
		<-m.done
		return m.variant, m.err
	}
	if len(have)+len(l.making) >= maxVariants {
		l.mu.Unlock()
		return nil, errTooManyVariants
	}
	m := &making{done: make(chan struct{})}
	if l.making == nil {
		l.making = make(map[arch.Want]*making)
	}
	l.making[want] = m
	l.mu.Unlock()

	m.variant, m.err = l.newVariant(want)
	l.mu.Lock()
	delete(l.making, want)
	if m.err == nil {
		more := maps.Clone(*l.variants.Load())
		more[want] = m.variant
		l.variants.Store(&more)
	}
	l.mu.Unlock()
	close(m.done)
	return m.variant, m.err
}

// newVariant records a variant and starts its queue.
func (l *Model) newVariant(want arch.Want) (*Variant, error) {
	v := &Variant{Want: want, Outputs: want.Outputs(), owned: want != l.weights.Own()}
	if l.host.records != nil {
		l.host.records()
	}
	for _, c := range l.copies {
		program := c.Program()
		if v.owned {
			var err error
			if program, err = c.Record(want); err != nil {
				v.closePrograms()
				return nil, err
			}
		}
		v.programs = append(v.programs, program)
	}
	v.Room.Store(firstRoom)
	o := l.options
	if want.MaxSim {
		o.MaxQueryRows = v.MaxQueryRows()
	}
	l.needs(want, v.programs[0])
	v.Queue = batch.NewQueue(l.host.slots, runPacked{model: l, variant: v}, o)
	return v, nil
}

// needs notes what batches of a program that gives want take of a card.
func (l *Model) needs(want arch.Want, p *engine.Program) {
	s := footprint(l.weights, want, p)
	l.mu.Lock()
	l.scratch = l.scratch.With(s)
	l.mu.Unlock()
}

// recorded are the variants there are. No lock is taken.
func (l *Model) recorded() []*Variant { return slices.Collect(maps.Values(*l.variants.Load())) }

func (v *Variant) closePrograms() {
	if v.owned {
		for _, p := range v.programs {
			p.Close()
		}
	}
}
