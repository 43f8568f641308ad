package worker

import (
	"slices"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// adaptedSet is a variant's programs recorded with some adapters, in order. Guarded by loras.mu.
type adaptedSet struct {
	variant  *variant
	adapters []*lora
	programs []*engine.Program // on each device
	holds    int               // batches that run it, and one while the variant has it
}

// maxProgramLoras is how many adapters a program takes (sie.h).
const maxProgramLoras = 64

// adapted returns programs that know the adapters of a batch, and which one each sequence has. The caller calls done when the
// batch has run.
func (v *variant) adapted(s *loras, wanted []batch.Adapter) (set *adaptedSet, which []int32, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var need []*lora
	for _, a := range wanted {
		// One that is gone was in use by requests that have ended, whose results nobody reads.
		if l, ok := a.(*lora); ok && !l.gone && !slices.Contains(need, l) {
			need = append(need, l)
		}
	}
	set = v.set
	if set == nil || slices.ContainsFunc(need, func(a *lora) bool { return !slices.Contains(set.adapters, a) }) {
		if set, err = v.recordLocked(s, need); err != nil {
			return nil, nil, nil, err
		}
	}
	which = make([]int32, len(wanted))
	for i, a := range wanted {
		l, _ := a.(*lora)
		which[i] = int32(slices.Index(set.adapters, l)) // -1 for none
	}
	set.holds++
	return set, which, func() {
		s.mu.Lock()
		s.releaseLocked(set)
		s.mu.Unlock()
	}, nil
}

// recordLocked records the variant's programs anew, with what is needed and every other adapter that is ready, so that batches of
// other mixtures find them, too.
func (v *variant) recordLocked(s *loras, need []*lora) (*adaptedSet, error) {
	set := &adaptedSet{variant: v, adapters: slices.Clone(need), holds: 1}
	for _, a := range s.all {
		if a.state == loraReady && !slices.Contains(need, a) && len(set.adapters) < maxProgramLoras {
			set.adapters = append(set.adapters, a)
		}
	}
	if len(set.adapters) > maxProgramLoras {
		return nil, errTooManyLoras
	}
	for i, c := range s.model.copies {
		adapters := make([]*arch.Adapter, len(set.adapters))
		for j, a := range set.adapters {
			adapters[j] = a.copies[i]
		}
		p, err := c.RecordAdapted(v.want, adapters)
		if err != nil {
			for _, recorded := range set.programs {
				recorded.Close()
			}
			return nil, err
		}
		set.programs = append(set.programs, p)
	}
	s.model.mu.Lock()
	s.model.scratch = s.model.scratch.of(s.model.weights, v.want, set.programs[0])
	s.model.mu.Unlock()
	for _, a := range set.adapters {
		a.sets++
	}
	if old := v.set; old != nil {
		s.dropLocked(old)
	}
	v.set = set
	return set, nil
}

// dropLocked takes a set from its variant.
func (s *loras) dropLocked(set *adaptedSet) {
	if set.variant.set == set {
		set.variant.set = nil
		s.releaseLocked(set)
	}
}

// releaseLocked lets go of a set; the last one closes its programs, and adapters that only it held.
func (s *loras) releaseLocked(set *adaptedSet) {
	if set.holds--; set.holds > 0 {
		return
	}
	for _, p := range set.programs {
		p.Close()
	}
	for _, a := range set.adapters {
		a.sets--
		s.freeLocked(a)
	}
}

// adaptedSets are those of all variants. Caller must hold loras.mu.
func (l *model) adaptedSets() (sets []*adaptedSet) {
	for _, v := range l.recorded() {
		if v.set != nil {
			sets = append(sets, v.set)
		}
	}
	return sets
}
