package model

import (
	"errors"
	"maps"
	"slices"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
)

// adaptedSet holds a variant's programs recorded with a list of adapters. Guarded by
// adapterCache.mu.
type adaptedSet struct {
	variant  *Variant
	adapters []*loadedAdapter
	programs []*engine.Program // one for each device
	prefixes []*engine.Program // of the variant's prefixes, one for each device, or nil
	holds    int               // number of batches that run it, plus one while it is the variant's set
}

// maxProgramAdapters is the number of adapters that a program takes (sie.h).
const maxProgramAdapters = 64

var errTooManyAdapters = errors.New("model: a batch has more adapters than a program takes")

// adapted returns a set with the adapters of a batch, and the index of each sequence's adapter in
// it, -1 for none. The caller must call done when the batch has run. If a set must be recorded, one
// caller records it and the others wait.
func (v *Variant) adapted(
	s *adapterCache, wanted []batch.Adapter,
) (set *adaptedSet, which []int32, done func(), err error) {
	if set, err = v.setFor(s, wanted); err != nil {
		return nil, nil, nil, err
	}
	return set, set.which(wanted), func() {
		s.mu.Lock()
		s.releaseLocked(set)
		s.unlock()
	}, nil
}

// which returns the index of each adapter in the set, -1 for none.
func (set *adaptedSet) which(adapters []batch.Adapter) []int32 {
	which := make([]int32, len(adapters))
	for i, a := range adapters {
		l, _ := a.(*loadedAdapter)
		which[i] = int32(slices.Index(set.adapters, l))
	}
	return which
}

// setFor returns a set that contains the adapters, held for the caller.
func (v *Variant) setFor(s *adapterCache, wanted []batch.Adapter) (*adaptedSet, error) {
	s.mu.Lock()
	for {
		// An adapter that is gone belongs to requests that have ended; no caller reads their
		// results.
		var need []*loadedAdapter
		for _, a := range wanted {
			if l, ok := a.(*loadedAdapter); ok && !l.gone && !slices.Contains(need, l) {
				need = append(need, l)
			}
		}
		if set := v.set; set != nil && !slices.ContainsFunc(need,
			func(a *loadedAdapter) bool { return !slices.Contains(set.adapters, a) }) {
			set.holds++
			s.unlock()
			return set, nil
		}
		if other := v.recording; other != nil {
			s.unlock()
			lockorder.AssertNoneHeld("waiting for a recording")
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
		err = s.record(v, set)
		s.mu.Lock()
		close(v.recording)
		v.recording = nil
		switch {
		case err != nil:
			s.releaseAllLocked(set.adapters)
			set = nil
		case !slices.ContainsFunc(set.adapters, func(a *loadedAdapter) bool { return a.gone }):
			// else the set is used for this batch only
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

// chooseLocked returns a set, held for the caller, of the needed adapters, of the model's tasks and
// of all other ready ones, up to maxProgramAdapters. So batches with other mixtures of adapters can
// use it too. The caller must record its programs.
func (s *adapterCache) chooseLocked(v *Variant, need []*loadedAdapter) (*adaptedSet, error) {
	set := &adaptedSet{variant: v, adapters: need, holds: 1}
	for _, a := range slices.AppendSeq(slices.Collect(maps.Values(s.tasks)), maps.Values(s.all)) {
		if a.ready && !slices.Contains(need, a) && len(set.adapters) < maxProgramAdapters {
			set.adapters = append(set.adapters, a)
		}
	}
	if len(set.adapters) > maxProgramAdapters {
		return nil, errTooManyAdapters
	}
	for _, a := range set.adapters {
		a.sets++
	}
	return set, nil
}

// record records the variant's programs with the adapters of the set. The caller holds the adapters
// and no lock.
func (s *adapterCache) record(v *Variant, set *adaptedSet) (err error) {
	if f := s.model.host.records; f != nil {
		f()
	}
	all := make([][]*arch.Adapter, len(s.model.replicas))
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	for i, c := range s.model.replicas {
		for _, a := range set.adapters {
			all[i] = append(all[i], a.replicas[i])
		}
		p, err := c.RecordAdapted(v.Want, all[i])
		if err != nil {
			return err
		}
		set.programs = append(set.programs, p)
	}
	if set.prefixes, err = s.model.recordPrefixes(v.Want, all); err != nil {
		return err
	}
	s.model.needs(v, set.programs[0])
	if set.prefixes != nil {
		s.model.needs(v, set.prefixes[0])
	}
	return nil
}

// close closes the programs of the set.
func (set *adaptedSet) close() {
	for _, p := range slices.Concat(set.programs, set.prefixes) {
		p.Close()
	}
	set.programs, set.prefixes = nil, nil
}

// dropLocked removes a set from its variant.
func (s *adapterCache) dropLocked(set *adaptedSet) {
	if set.variant.set == set {
		set.variant.set = nil
		s.releaseLocked(set)
	}
}

// releaseLocked ends one hold of a set. After the last one, unlock closes its programs and frees
// adapters that only it held.
func (s *adapterCache) releaseLocked(set *adaptedSet) {
	if set.holds--; set.holds == 0 {
		s.dead.sets = append(s.dead.sets, set)
	}
}

// adaptedSets returns the sets of all variants. The caller must hold adapterCache.mu.
func (l *Model) adaptedSets() (sets []*adaptedSet) {
	for _, v := range l.recorded() {
		if v.set != nil {
			sets = append(sets, v.set)
		}
	}
	return sets
}
