package worker

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// variant is a recorded program over a model's weights, and its queue.
type variant struct {
	want     arch.Want
	queue    *batch.Queue
	programs []*engine.Program // on each device
	owned    bool              // recorded here, not with the weights

	set *adaptedSet // the programs with adapters, if any; guarded by the model's loras.mu

	// room is how many columns a sparse result has room for at first; it grows with what is seen.
	room atomic.Int32
}

var poolings = map[catalog.Pooling]engine.Pooling{
	catalog.PoolingCLS: engine.PoolCLS, catalog.PoolingMean: engine.PoolMean, catalog.PoolingLast: engine.PoolLast,
}

// maxVariants bounds the programs over one set of weights. There are a few outputs and poolings, and what a catalog's profiles
// fold; requests cannot ask for more than that.
const maxVariants = 64

// variant returns the program that gives what is wanted, recording it on first use.
func (l *model) variant(want arch.Want) (*variant, error) {
	if want.Dense && want.Pooling == 0 {
		want.Pooling = l.weights.Pooling
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.variants[want]; v != nil {
		return v, nil
	}
	if len(l.variants) >= maxVariants {
		return nil, errTooManyVariants
	}
	v := &variant{want: want, owned: want != l.weights.Own()}
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
	v.room.Store(firstRoom)
	o := l.options
	if want.MaxSim {
		o.MaxQueryRows = int(v.programs[0].Caps().MaxQueryRows)
	}
	l.scratch = l.scratch.of(l.weights, want, v.programs[0])
	v.queue = batch.NewQueue(l.w.slots, runPacked{model: l, variant: v}, o)
	l.variants[want] = v
	return v, nil
}

// recorded are the variants there are.
func (l *model) recorded() []*variant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.variants))
}

func (v *variant) closePrograms() {
	if v.owned {
		for _, p := range v.programs {
			p.Close()
		}
	}
}
