package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// Variant is one program of a model, recorded on every device, and its queue.
type Variant struct {
	Want     arch.Want         // the outputs that the program gives
	Outputs  []engine.Output   // what it gives, in order; read-only
	Queue    *batch.Queue      // of its items
	programs []*engine.Program // one for each device
	prefixes []*engine.Program // one for each device; nil: items share no prefixes
	// recorded for this variant; else the program was recorded when the weights were loaded
	owned bool

	set *adaptedSet // the programs with LoRA adapters, or nil; guarded by the model's adapterCache.mu
	// closed when the set that is being recorded is done; nil if none is; guarded like set
	recording chan struct{}

	// Room is the number of columns for which a sparse result gets room at first, and of records
	// for which a found one does. Grow raises it.
	Room atomic.Int32
}

// firstRoom is the initial value of Variant.Room.
const firstRoom = 1024

// SparseRoom returns the number of columns for which a result of the sparse output o gets room. A
// row that is folded from tokens token vectors never has more. Others may: see Grow.
func (v *Variant) SparseRoom(o *engine.Output, tokens int) int {
	if arch.Output(o.Name) == arch.OutSMVE {
		return v.Want.SparseRoom(o, tokens)
	}
	return min(o.Columns, int(v.Room.Load()))
}

// maxFoundRoom bounds the records for which found results get room at first. One that has more runs
// again, so that one request with a low threshold does not make all later results large.
const maxFoundRoom = 16 << 10

// FoundSpec returns the spec of a result of the found output o whose logits are above threshold,
// with room for Room records, or for `most` if it has never more than these, at most maxFoundRoom.
// A result may have more records than room: see Grow.
func (v *Variant) FoundSpec(o *engine.Output, most int, threshold float32) batch.Spec {
	room := max(1, min(most, int(v.Room.Load()), maxFoundRoom))
	return batch.Spec{DType: int32(engine.F32), Dims: int32(room), Threshold: threshold,
		Bytes: int(engine.FoundBytes(o, room))}
}

// Grow raises Room to n + n/4 if it is less than n. It is called after a sparse result of n
// columns, or a found one of n records.
func (v *Variant) Grow(n int) {
	for {
		have := v.Room.Load()
		if int(have) >= n || v.Room.CompareAndSwap(have, int32(n+n/4)) {
			return
		}
	}
}

// Both packages have the number, because neither imports the other.
var _ = [1]int{}[batch.MaxPrefixes-arch.MaxPrefixes]

// MaxPrefixTokens returns the number of tokens that all shared prefixes of one batch may have
// together; 0: items share none.
func (v *Variant) MaxPrefixTokens() int { return int(v.programs[0].Caps().MaxStateRows) }

// MaxQueryRows returns the number of rows that all queries of one batch may have together.
func (v *Variant) MaxQueryRows() int { return int(v.programs[0].Caps().MaxQueryRows) }

// errTooManyVariants is returned for a request that needs more than maxVariants variants of a
// model.
var errTooManyVariants = fmt.Errorf("model: more than %d different outputs in use", maxVariants)

// maxVariants bounds the variants of one model. Requests can only combine a few outputs and
// poolings, and the folds of the catalog's profiles.
const maxVariants = 64

// variants maps outputs to variants. It is immutable once readers can see it.
type variants map[arch.Want]*Variant

// making is a variant that is being recorded.
type making struct {
	done    chan struct{} // closed when the variant is ready or has failed
	variant *Variant
	err     error
}

// Variant returns the variant with the outputs want, and records its program on first use.
// Concurrent callers share one recording. No lock is held while it is recorded.
func (l *Model) Variant(want arch.Want) (*Variant, error) {
	if want.Give.Has(arch.OutDense) && want.Pooling == 0 {
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
		lockorder.AssertNoneHeld("waiting for a recording")
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

	m.err = errNotRecorded // unless newVariant returns
	defer func() {
		l.mu.Lock()
		delete(l.making, want)
		if m.err == nil {
			more := maps.Clone(*l.variants.Load())
			more[want] = m.variant
			l.variants.Store(&more)
		}
		l.mu.Unlock()
		close(m.done)
	}()
	m.variant, m.err = l.newVariant(want)
	return m.variant, m.err
}

// errNotRecorded is the error of those who waited for a recording that ended in a panic, which a
// server survives.
var errNotRecorded = errors.New("model: a program was not recorded to the end")

// newVariant records a variant and starts its queue.
func (l *Model) newVariant(want arch.Want) (*Variant, error) {
	v := &Variant{Want: want, owned: want != l.weights.Own()}
	if l.host.records != nil {
		l.host.records()
	}
	for _, c := range l.replicas {
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
	var err error
	if v.prefixes, err = l.recordPrefixes(want, nil); err != nil {
		v.closePrograms()
		return nil, err
	}
	v.Outputs = v.programs[0].Outputs()
	v.Room.Store(firstRoom)
	o := l.options
	o.MaxQueryRows, o.MaxPrefixTokens = v.MaxQueryRows(), v.MaxPrefixTokens()
	o.MaxSpans = int(v.programs[0].Caps().MaxSpans)
	if caps := v.programs[0].Caps(); want.Long {
		o.MaxCost, o.MaxSeqs = int(caps.MaxTokens), int(caps.MaxSeqs)
	} else {
		l.needs(v, v.programs[0])
		for _, p := range v.prefixes[:min(1, len(v.prefixes))] {
			l.needs(v, p)
		}
	}
	v.Queue = batch.NewQueue(l.host.slots, batchRunner{model: l, variant: v}, o)
	return v, nil
}

// recordPrefixes records the programs of the prefixes that items of a variant share, one for each
// device; nil where they share none. adapters has those of each device, or is nil.
func (l *Model) recordPrefixes(
	want arch.Want, adapters [][]*arch.Adapter,
) (programs []*engine.Program, err error) {
	for i, c := range l.replicas {
		if !c.SharesPrefixes(want) {
			return nil, nil
		}
		var with []*arch.Adapter
		if adapters != nil {
			with = adapters[i]
		}
		p, err := c.RecordPrefixes(with)
		if err != nil {
			for _, recorded := range programs {
				recorded.Close()
			}
			return nil, err
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// needs raises the memory of the model's largest batch to what batches of p take, a program of v.
func (l *Model) needs(v *Variant, p *engine.Program) {
	s := footprint(l.weights, v.Want, p)
	if v.Want.Long {
		l.long.raise(v, s)
		return
	}
	l.mu.Lock()
	l.scratch = l.scratch.With(s)
	l.mu.Unlock()
}

// recorded returns the current variants. It takes no lock.
func (l *Model) recorded() []*Variant { return slices.Collect(maps.Values(*l.variants.Load())) }

func (v *Variant) closePrograms() {
	for _, p := range v.prefixes {
		p.Close()
	}
	if v.owned {
		for _, p := range v.programs {
			p.Close()
		}
	}
}
