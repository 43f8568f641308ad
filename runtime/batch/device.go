package batch

import (
	"context"
	"slices"
	"sync"
)

// Packed is a batch as the device takes it: sequences one after another, no padding.
type Packed struct {
	IDs       []int32 // [T]
	CuSeqlens []int32 // [B+1], from 0
	Specs     []Spec  // [B]
	Offsets   []int64 // [B], where each result starts in the output
	OutBytes  int64   // size of the output
}

// Runner runs one packed batch and returns its output, which the caller then owns. Safe for concurrent use. p is
// borrowed until it returns.
type Runner interface {
	RunPacked(ctx context.Context, p *Packed) ([]byte, error)
}

// Device bounds the batches in flight on one device over all its queues, and hands freed slots to waiting queues in
// the order in which they asked. Safe for concurrent use.
type Device struct {
	mu      sync.Mutex
	slots   int
	busy    int
	queues  map[*Queue]struct{}
	waiting []*Queue
	granted map[*Queue]bool
}

// NewDevice returns a device that runs up to slots batches at a time, slots ≥ 1. Two keep a device busy: one runs while
// the next is filled.
func NewDevice(slots int) *Device {
	return &Device{slots: max(1, slots), queues: make(map[*Queue]struct{}), granted: make(map[*Queue]bool)}
}

// InFlight returns the number of slots taken.
func (d *Device) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// state says whether nothing is in flight and whether q could have a slot now.
func (d *Device) state(q *Queue) (idle, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy == 0, d.granted[q] || d.busy < d.slots
}

// acquire takes a slot for q, or notes that q waits for one.
func (d *Device) acquire(q *Queue) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.granted[q] {
		delete(d.granted, q)
		return true
	}
	if d.busy < d.slots {
		d.busy++
		return true
	}
	d.waitLocked(q)
	return false
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

// release gives a slot to the queue that has waited longest, or back to the device.
func (d *Device) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) > 0 {
		q := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.granted[q] = true
		q.poke()
		return
	}
	d.busy--
	for q := range d.queues {
		q.poke()
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
	delete(d.queues, q)
	d.waiting = slices.DeleteFunc(d.waiting, func(w *Queue) bool { return w == q })
	held := d.granted[q]
	delete(d.granted, q)
	d.mu.Unlock()
	if held {
		d.release()
	}
}
