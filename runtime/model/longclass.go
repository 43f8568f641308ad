package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
)

// A model has programs in two length classes. A text of at most arch.Model.ShortLen tokens always
// runs in a program for short texts, so its bits do not depend on what other texts there are. The
// program for longer ones is recorded when the first such text comes; its memory is counted from
// then on, until no request has used it for Options.LongIdle.

// LongError says that there is no room for the workspace of long texts.
type LongError struct {
	Tokens int   // texts of more tokens are long
	Bytes  int64 // that the workspace needs, with the weights of the model
	Total  int64 // bytes of memory that there are
	Never  bool  // the workspace would not fit even if nothing else were there
	Device string
	cause  error
}

func (e *LongError) Error() string {
	return fmt.Sprintf("texts of more than %d tokens have no room: %v", e.Tokens, e.cause)
}

// Unwrap returns the reason.
func (e *LongError) Unwrap() error { return e.cause }

// Long returns the variant for the texts that are too long for v, and counts its memory until
// release is called, and for a while after. ctx bounds the wait for memory. The error is a
// *LongError where there is too little, one of ctx, or one of recording.
func (l *Model) Long(ctx context.Context, v *Variant) (long *Variant, release func(), err error) {
	want := v.Want
	want.Long = true
	if long, err = l.Variant(want); err != nil {
		return nil, nil, err
	}
	takes := footprint(l.weights, want, long.programs[0])
	packed := l.weights.Bytes()
	arena, slots := takes.With(l.largest()).Bytes()
	err = l.long.hold(ctx, long, takes, func() error {
		return l.host.models.PackAlone(ctx, func() error {
			return l.host.makeRoom(ctx, need{packed: packed, counted: true, whole: packed + arena + slots,
				what: "its weights and a batch of its longest text need", spare: l.key})
		})
	})
	if noMemory(err) || errors.Is(err, registry.ErrBusy) {
		lack := &LongError{Tokens: l.weights.ShortLen, Bytes: packed + arena + slots, cause: err}
		var s *shortage
		if errors.As(err, &s) {
			lack.Total, lack.Never, lack.Device = s.total, s.neverFits, s.device
		}
		err = lack
	}
	if err != nil {
		return nil, nil, err
	}
	return long, l.long.release, nil
}

// giveUpLong gives up the memory of programs for long texts that are idle, and of those of models
// that are gone: arenas shrink to what is left.
func (h *Host) giveUpLong() {
	shrinks := h.shrinks.Swap(false)
	h.loaded.Range(func(_, l any) bool {
		shrinks = l.(*Model).long.expire(h.opt.LongIdle) || shrinks
		return true
	})
	if !shrinks {
		return
	}
	var left engine.Footprint
	h.loaded.Range(func(_, l any) bool {
		left = left.With(l.(*Model).largest())
		return true
	})
	for _, d := range h.devices {
		if d.runner != nil { // the null device has none
			d.runner.Shrink(left)
		}
	}
}

// longClass counts the memory of a model's variants for long texts. The zero value counts nothing.
type longClass struct {
	mu      lockorder.Mutex[lockorder.Model] // guards the fields below
	counted map[*Variant]engine.Footprint
	adapted map[*Variant]engine.Footprint // of their programs with adapters, counted or not
	asked   *Variant                      // the counted one for which there may be no room
	answer  chan struct{}                 // closed when that is known
	uses    int                           // requests that may run batches
	used    time.Time                     // when uses became 0
}

// hold counts takes for v until release. If it is not counted yet, room is asked, one caller at a
// time and with no lock held; takes counts meanwhile. If room returns an error, nothing is held,
// and hold returns that error. ctx bounds the wait for another caller.
func (c *longClass) hold(ctx context.Context, v *Variant, takes engine.Footprint, room func() error) error {
	c.mu.Lock()
	c.uses++
	for {
		_, ok := c.counted[v]
		if ok && c.asked != v {
			c.mu.Unlock()
			return nil
		}
		answer := c.answer
		if answer == nil {
			break
		}
		c.mu.Unlock()
		lockorder.AssertNoneHeld("waiting for room")
		select {
		case <-answer:
		case <-ctx.Done():
			c.release()
			return context.Cause(ctx)
		}
		c.mu.Lock()
	}
	if c.counted == nil {
		c.counted = make(map[*Variant]engine.Footprint)
	}
	answer := make(chan struct{})
	c.counted[v], c.asked, c.answer = takes.With(c.adapted[v]), v, answer
	c.mu.Unlock()
	refused := true // also if room panics, which a server survives
	defer func() {
		c.mu.Lock()
		c.asked, c.answer = nil, nil
		if refused {
			delete(c.counted, v)
		}
		c.mu.Unlock()
		close(answer)
		if refused {
			c.release()
		}
	}()
	err := room()
	refused = err != nil
	return err
}

// release ends a hold.
func (c *longClass) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses--; c.uses == 0 {
		c.used = time.Now()
	}
}

// raise raises what v counts, now or the next time, to what its programs with adapters take.
func (c *longClass) raise(v *Variant, takes engine.Footprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.adapted == nil {
		c.adapted = make(map[*Variant]engine.Footprint)
	}
	c.adapted[v] = takes.With(c.adapted[v])
	if has, ok := c.counted[v]; ok {
		c.counted[v] = has.With(takes)
	}
}

// expire counts nothing any more if nothing is held and the last hold ended idle ago. It reports
// whether anything was counted.
func (c *longClass) expire(idle time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses > 0 || len(c.counted) == 0 || time.Since(c.used) < idle {
		return false
	}
	c.counted = nil
	return true
}

// any reports whether anything is counted.
func (c *longClass) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counted) > 0
}

// footprint returns the memory that is counted.
func (c *longClass) footprint() (all engine.Footprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.counted {
		all = all.With(f)
	}
	return all
}
