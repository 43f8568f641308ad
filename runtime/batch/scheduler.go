package batch

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Runner runs packed batches on the devices of a queue's Scheduler. RunPacked returns the outputs,
// which the caller then owns; p is borrowed until it returns. It is safe for concurrent use.
type Runner interface {
	RunPacked(ctx context.Context, device int, p *Packed) (Result, error)
}

// Scheduler chooses the next batch for one device or several equal ones. It bounds the batches in
// flight over all its queues. A CPU counts as one device. Safe for concurrent use.
//
// Lanes with waiting items take turns: the first in order that is due and may use a free slot gets
// it, and then goes to the end. So each other lane sends at most one batch before a lane that is
// due gets a slot. No slot stays free while a lane that may use it is due. Long batches hold at
// most one slot of a device, so a device with two or more slots always has one for short batches.
type Scheduler struct {
	slots int // of a device

	// guards the fields below, and the marked fields of its queues
	mu      lockorder.Mutex[lockorder.Scheduler]
	devices []device
	lanes   []*lane // lanes with waiting items, in the order of their turns
	pace    [laneKinds]pace
	timer   *time.Timer // dispatches when it fires
	wakeAt  time.Time   // when the timer fires; zero: it is not set
}

// device is the state of one device.
type device struct {
	busy    int // slots taken
	of      [laneKinds]busyPeriod
	lost    bool
	since   time.Time     // when busy last rose from 0
	working time.Duration // total time with a slot taken, up to since
}

// NewSingleScheduler returns a Scheduler of one device that runs up to slots batches at a time,
// slots ≥ 1. Two slots keep a device busy: one batch runs while the next is prepared.
func NewSingleScheduler(slots int) *Scheduler { return NewScheduler(1, slots) }

// NewScheduler returns a Scheduler of devices ≥ 1, each of which runs up to slots batches at a
// time.
func NewScheduler(devices, slots int) *Scheduler {
	return &Scheduler{slots: max(1, slots), devices: make([]device, max(1, devices))}
}

// InFlight returns the number of slots taken, on all devices.
func (d *Scheduler) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, c := range d.devices {
		n += c.busy
	}
	return n
}

// BusyTime returns the total time for which the device has had a batch in flight.
func (d *Scheduler) BusyTime(device int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &d.devices[device]
	if c.busy > 0 {
		return c.working + time.Since(c.since)
	}
	return c.working
}

// deviceForLocked returns the device that a batch of the kind would run on, or -1 if none has a
// slot for it. idle reports that the device has no batch of the kind in flight. Such devices come
// first, then the device with the fewest slots taken, then the first in order.
func (d *Scheduler) deviceForLocked(of laneKind) (best int, idle bool) {
	best = -1
	for i := range d.devices {
		c := &d.devices[i]
		if c.lost || c.busy == d.slots || of == long && c.of[long].running > 0 {
			continue
		}
		free := c.of[of].running == 0
		if best < 0 || free && !idle || free == idle && c.busy < d.devices[best].busy {
			best, idle = i, free
		}
	}
	return best, idle
}

// dispatchLocked starts every batch that is due and has a slot. Then it sets the timer for the next
// lane that has a free slot and will be due. It is called when items arrive, when a batch ends and
// when the timer fires.
func (d *Scheduler) dispatchLocked(now time.Time) {
	next := forever
	for i := 0; i < len(d.lanes); {
		l := d.lanes[i]
		device, idle := d.deviceForLocked(l.kind)
		if device < 0 {
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
		// else all were dropped and others joined: it keeps its turn
		if l.listed = len(l.items) > 0; !l.listed || len(items) > 0 {
			d.lanes = slices.Delete(d.lanes, i, i+1)
		}
		if len(items) == 0 {
			continue
		}
		if l.listed {
			d.lanes = append(d.lanes, l)
		}
		d.beginLocked(device, l.kind, took.work, now)
		l.q.startLocked(device, l.kind, items, took, more)
	}
	d.wakeLocked(now, next)
}

const forever = time.Duration(math.MaxInt64) // no timer: an arrival or the end of a batch dispatches again

// wakeLocked sets the timer to fire after the given time, unless it fires earlier anyway.
func (d *Scheduler) wakeLocked(now time.Time, after time.Duration) {
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

func (d *Scheduler) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakeAt = time.Time{}
	d.dispatchLocked(time.Now())
}

// beginLocked takes a slot of the device.
func (d *Scheduler) beginLocked(device int, of laneKind, work float64, now time.Time) {
	c := &d.devices[device]
	if c.busy++; c.busy == 1 {
		c.since = now
	}
	c.of[of].begin(work, now)
}

// endLocked gives a slot of the device back.
func (d *Scheduler) endLocked(
	device int, of laneKind, work float64, failed, representative bool, now time.Time,
) {
	c := &d.devices[device]
	c.of[of].end(work, failed, representative, now, &d.pace[of])
	if c.busy--; c.busy == 0 {
		c.working += now.Sub(c.since)
	}
}

// lose marks the device as lost, so that it gets no more batches. A lost device fails batches at
// once, is therefore always free, and would attract all the work. The last device is never marked,
// so that queued items get its error instead of waiting forever.
func (d *Scheduler) lose(device int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := 0
	for _, c := range d.devices {
		if !c.lost {
			left++
		}
	}
	if left > 1 {
		d.devices[device].lost = true
	}
}

// forgetLocked removes a lane from the turns.
func (d *Scheduler) forgetLocked(l *lane) {
	if l.listed {
		l.listed = false
		d.lanes = slices.DeleteFunc(d.lanes, func(other *lane) bool { return other == l })
	}
}
