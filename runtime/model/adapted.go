package model

import (
	"errors"
	"slices"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// adaptedSet is a variant's programs recorded with some adapters, in order. Guarded by loras.mu.
type adaptedSet struct {
	variant  *Variant
	adapters []*lora
	programs []*engine.Program // on each device
	holds    int               // batches that run it, and one while the variant has it
}

// maxProgramLoras is how many adapters a program takes (sie.h).
const maxProgramLoras = 64

var errTooManyLoras = errors.New("model: a batch has more adapters than a program takes")

// adapted returns programs that know the adapters of a batch, and which one each sequence has. The
// caller calls done when the batch has run. Programs that have to be recorded are recorded by one
// caller; others that need them wait.
func (v *Variant) adapted(s *loras, wanted []batch.Adapter) (set *adaptedSet, which []int32, done func(), err error) {
	if set, err = v.setFor(s, wanted); err != nil {
		return nil, nil, nil, err
	}
	which = make([]int32, len(wanted))
	for i, a := range wanted {
		l, _ := a.(*lora)
		which[i] = int32(slices.Index(set.adapters, l)) // -1 for none
	}
	return set, which, func() {
		s.mu.Lock()
		s.releaseLocked(set)
		s.unlock()
	}, nil
}

// setFor returns a set that has the adapters, held for the caller.
func (v *Variant) setFor(s *loras, wanted []batch.Adapter) (*adaptedSet, error) {
	s.mu.Lock()
	for {
		// One that is gone was in use by requests that have ended, whose results nobody reads.
		var need []*lora
		for _, a := range wanted {
			if l, ok := a.(*lora); ok && !l.gone && !slices.Contains(need, l) {
				need = append(need, l)
			}
		}
		if set := v.set; set != nil && !slices.ContainsFunc(need, func(a *lora) bool { return !slices.Contains(set.adapters, a) }) {
			set.holds++
			s.unlock()
			return set, nil
		}
		if other := v.recording; other != nil {
			s.unlock()
			lockorder.None("waiting for a recording")
			<-other
			s.mu.Lock()
			continue
		}
		set, err := s.chooseLocked(v, need)
		if err != nil {
			s.unlock()
			return nil, err
		}
		v.recording = make(chan struct{})
		s.unlock()
		set.programs, err = s.record(v, set.adapters)
		s.mu.Lock()
		close(v.recording)
		v.recording = nil
		switch {
		case err != nil:
			s.letGoLocked(set.adapters)
			set = nil
		case !slices.ContainsFunc(set.adapters, func(a *lora) bool { return a.gone }): // else it is for this batch alone
			if v.set != nil {
				s.dropLocked(v.set)
			}
			v.set = set
			set.holds++
		}
		s.unlock()
		return set, err
	}
}

// chooseLocked makes a set, held for the caller, of what is needed and every other adapter that is
// ready, so that batches of other mixtures find them, too. Its programs are to be recorded.
func (s *loras) chooseLocked(v *Variant, need []*lora) (*adaptedSet, error) {
	set := &adaptedSet{variant: v, adapters: need, holds: 1}
	for _, a := range s.all {
		if a.ready && !slices.Contains(need, a) && len(set.adapters) < maxProgramLoras {
			set.adapters = append(set.adapters, a)
		}
	}
	if len(set.adapters) > maxProgramLoras {
		return nil, errTooManyLoras
	}
	for _, a := range set.adapters {
		a.sets++
	}
	return set, nil
}

// record records the variant's programs anew, with the adapters. The caller holds them, and no
// lock.
func (s *loras) record(v *Variant, adapters []*lora) (programs []*engine.Program, err error) {
	if f := s.model.host.records; f != nil {
		f()
	}
	for i, c := range s.model.copies {
		packed := make([]*arch.Adapter, len(adapters))
		for j, a := range adapters {
			packed[j] = a.copies[i]
		}
		p, err := c.RecordAdapted(v.Want, packed)
		if err != nil {
			for _, recorded := range programs {
				recorded.Close()
			}
			return nil, err
		}
		programs = append(programs, p)
	}
	s.model.needs(v.Want, programs[0])
	return programs, nil
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
	if set.holds--; set.holds == 0 {
		s.dead.sets = append(s.dead.sets, set)
	}
}

// adaptedSets are those of all variants. Caller must hold loras.mu.
func (l *Model) adaptedSets() (sets []*adaptedSet) {
	for _, v := range l.recorded() {
		if v.set != nil {
			sets = append(sets, v.set)
		}
	}
	return sets
}
