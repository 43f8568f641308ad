package batch

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Runner runs one packed batch on a card of the queue's Device and returns its outputs, which the
// caller then owns. Safe for concurrent use. p is borrowed until it returns.
type Runner interface {
	RunPacked(ctx context.Context, card int, p *Packed) (Result, error)
}

// Device bounds the batches in flight on one card or several equal ones, over all its queues, and
// says whose batch is next. A CPU counts as one card. Safe for concurrent use.
//
// Lanes with waiting items take turns: the first in turn that is due and may have a slot gets it,
// and goes behind the others. So a lane that is due is passed by at most one batch of each other
// lane before it gets a slot that it may have. No slot stays free while a lane is due that may have
// it. Long batches hold one slot of a card at most, so that with two or more of them short ones
// always have one.
type Device struct {
	slots int // of a card

	mu     lockorder.Mutex[lockorder.Slots] // guards the fields below, and those of the device's queues that say so
	cards  []card
	lanes  []*lane // with waiting items, in turn
	pace   [classes]pace
	timer  *time.Timer // dispatches when it fires
	wakeAt time.Time   // when that is; zero: it is not set
}

// card is what is known of one card.
type card struct {
	busy    int // slots taken
	of      [classes]stretch
	lost    bool
	since   time.Time     // while busy: when that began
	working time.Duration // with a slot taken, before since
}

// NewDevice returns one card that runs up to slots batches at a time, slots ≥ 1. Two keep a card
// busy: one runs while the next is filled.
func NewDevice(slots int) *Device { return NewDevices(1, slots) }

// NewDevices returns cards ≥ 1 that each run up to slots batches at a time.
func NewDevices(cards, slots int) *Device {
	return &Device{slots: max(1, slots), cards: make([]card, max(1, cards))}
}

// InFlight returns the number of slots taken, on all cards.
func (d *Device) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, c := range d.cards {
		n += c.busy
	}
	return n
}

// Working returns for how long the card has had a batch in flight since the start.
func (d *Device) Working(card int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &d.cards[card]
	if c.busy > 0 {
		return c.working + time.Since(c.since)
	}
	return c.working
}

// cardForLocked is the card that a batch of the class would run on, and whether that has none of
// the class in flight; -1 if there is none. It is one with nothing of the class if there is, then
// the one with fewest slots taken, then the first.
func (d *Device) cardForLocked(of class) (best int, idle bool) {
	best = -1
	for i := range d.cards {
		c := &d.cards[i]
		if c.lost || c.busy == d.slots || of == long && c.of[long].running > 0 {
			continue
		}
		free := c.of[of].running == 0
		if best < 0 || free && !idle || free == idle && c.busy < d.cards[best].busy {
			best, idle = i, free
		}
	}
	return best, idle
}

// dispatchLocked starts every batch that is due and may have a slot, and sets the timer for the
// next one that will be due while a slot is free. It is called whenever items arrive, a batch ends
// or time has passed.
func (d *Device) dispatchLocked(now time.Time) {
	next := forever
	for i := 0; i < len(d.lanes); {
		l := d.lanes[i]
		card, idle := d.cardForLocked(l.class)
		if card < 0 {
			i++
			continue
		}
		due, after := l.dueLocked(now, idle)
		if !due {
			next = min(next, after)
			i++
			continue
		}
		items, took, more := l.takeLocked(now)
		if l.listed = len(l.items) > 0; !l.listed || len(items) > 0 { // else all were gone and others have come: it is still its turn
			d.lanes = slices.Delete(d.lanes, i, i+1)
		}
		if len(items) == 0 {
			continue
		}
		if l.listed {
			d.lanes = append(d.lanes, l)
		}
		d.beginLocked(card, l.class, took.work, now)
		l.q.startLocked(card, l.class, items, took, more)
	}
	d.wakeLocked(now, next)
}

const forever = time.Duration(math.MaxInt64) // something else ends it

// wakeLocked sets the timer unless it fires before.
func (d *Device) wakeLocked(now time.Time, after time.Duration) {
	at := now.Add(after)
	if after == forever || !d.wakeAt.IsZero() && !at.Before(d.wakeAt) {
		return
	}
	d.wakeAt = at
	if d.timer == nil {
		d.timer = time.AfterFunc(after, d.wake)
	} else {
		d.timer.Reset(after)
	}
}

func (d *Device) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakeAt = time.Time{}
	d.dispatchLocked(time.Now())
}

// beginLocked takes a slot of the card.
func (d *Device) beginLocked(card int, of class, work float64, now time.Time) {
	c := &d.cards[card]
	if c.busy++; c.busy == 1 {
		c.since = now
	}
	c.of[of].begin(work, now)
}

// endLocked gives a slot of the card back.
func (d *Device) endLocked(card int, of class, work float64, failed, tells bool, now time.Time) {
	c := &d.cards[card]
	c.of[of].end(work, failed, tells, now, &d.pace[of])
	if c.busy--; c.busy == 0 {
		c.working += now.Sub(c.since)
	}
}

// lose gives the card no more batches: a lost one would fail them at once and so draw all the work
// there is. The last card stays, so that queued items get its error instead of waiting for nothing.
func (d *Device) lose(card int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := 0
	for _, c := range d.cards {
		if !c.lost {
			left++
		}
	}
	if left > 1 {
		d.cards[card].lost = true
	}
}

// forgetLocked takes a lane out of the turns.
func (d *Device) forgetLocked(l *lane) {
	if l.listed {
		l.listed = false
		d.lanes = slices.DeleteFunc(d.lanes, func(other *lane) bool { return other == l })
	}
}
