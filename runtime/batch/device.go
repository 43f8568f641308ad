package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Runner runs one packed batch on a card of the queue's Device and returns its outputs, which the caller then owns. Safe
// for concurrent use. p is borrowed until it returns.
type Runner interface {
	RunPacked(ctx context.Context, card int, p *Packed) (Result, error)
}

// Device bounds the batches in flight on one card or several equal ones, over all its queues, and hands freed slots to
// waiting queues in the order in which they asked. A CPU counts as one card. Safe for concurrent use.
type Device struct {
	slots int // of a card

	mu      sync.Mutex // guards the fields below
	cards   []card
	queues  map[*Queue]struct{}
	waiting []*Queue
	granted map[*Queue]int // the card whose slot a queue was given and has not taken
}

// card is what is known of one card.
type card struct {
	busy    int // slots taken or granted
	lost    bool
	since   time.Time     // while busy: when that began
	working time.Duration // with a slot taken, before since
}

// NewDevice returns one card that runs up to slots batches at a time, slots ≥ 1. Two keep a card busy: one runs while
// the next is filled.
func NewDevice(slots int) *Device { return NewDevices(1, slots) }

// NewDevices returns cards ≥ 1 that each run up to slots batches at a time.
func NewDevices(cards, slots int) *Device {
	return &Device{slots: max(1, slots), cards: make([]card, max(1, cards)), queues: make(map[*Queue]struct{}),
		granted: make(map[*Queue]int)}
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

// state says whether a card has nothing in flight and whether q could have a slot now.
func (d *Device) state(q *Queue) (idle, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, free = d.granted[q]
	if i := d.freestLocked(); i >= 0 {
		return d.cards[i].busy == 0, true
	}
	return false, free
}

// freestLocked is the card with the fewest slots taken, the first of equals, or -1 if none has one left.
func (d *Device) freestLocked() int {
	best := -1
	for i, c := range d.cards {
		if !c.lost && c.busy < d.slots && (best < 0 || c.busy < d.cards[best].busy) {
			best = i
		}
	}
	return best
}

// acquire takes a slot for q and says of which card, or notes that q waits for one.
func (d *Device) acquire(q *Queue) (card int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, ok := d.granted[q]; ok {
		delete(d.granted, q)
		return i, true
	}
	i := d.freestLocked()
	if i < 0 {
		d.waitLocked(q)
		return 0, false
	}
	// A queue that waited and was woken by a lost card is not owed a slot any more.
	d.waiting = slices.DeleteFunc(d.waiting, func(w *Queue) bool { return w == q })
	c := &d.cards[i]
	if c.busy++; c.busy == 1 {
		c.since = time.Now()
	}
	return i, true
}

// wait notes that q has work but found every slot taken.
func (d *Device) wait(q *Queue) {
	d.mu.Lock()
	d.waitLocked(q)
	d.mu.Unlock()
}

func (d *Device) waitLocked(q *Queue) {
	if !slices.Contains(d.waiting, q) {
		d.waiting = append(d.waiting, q)
	}
}

// release gives a slot of the card to the queue that has waited longest, or back to the device.
func (d *Device) release(card int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseLocked(card)
}

func (d *Device) releaseLocked(card int) {
	c := &d.cards[card]
	if len(d.waiting) > 0 && !c.lost {
		q := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.granted[q] = card
		q.poke()
		return
	}
	if c.busy--; c.busy == 0 {
		c.working += time.Since(c.since)
	}
	for q := range d.queues {
		q.poke()
	}
}

// lose gives the card no more batches: a lost one would fail them at once and so draw all the work there is. The last
// card stays, so that queued items get its error instead of waiting for nothing.
func (d *Device) lose(card int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := 0
	for _, c := range d.cards {
		if !c.lost {
			left++
		}
	}
	if left == 1 || d.cards[card].lost {
		return
	}
	d.cards[card].lost = true
	for q, i := range d.granted {
		if i == card {
			delete(d.granted, q)
			d.releaseLocked(card)
		}
	}
}

func (d *Device) add(q *Queue) {
	d.mu.Lock()
	d.queues[q] = struct{}{}
	d.mu.Unlock()
}

// remove forgets a closing queue and passes on a slot it was granted.
func (d *Device) remove(q *Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.queues, q)
	d.waiting = slices.DeleteFunc(d.waiting, func(w *Queue) bool { return w == q })
	if i, held := d.granted[q]; held {
		delete(d.granted, q)
		d.releaseLocked(i)
	}
}
