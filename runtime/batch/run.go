package batch

import (
	"context"
	"fmt"
	"time"
)

// startLocked starts the goroutine of a batch, for which a slot is already taken. more: other items
// stayed in the lane.
func (q *Queue) startLocked(device int, of laneKind, items []*Item, took load, more bool) {
	q.running++
	q.batches.Add(1)
	go q.runBatch(device, of, items, took, more)
}

// runBatch runs one batch in its slot of the device, then gives the slot back and starts the next
// batches.
func (q *Queue) runBatch(device int, of laneKind, items []*Item, took load, more bool) {
	defer q.batches.Done()
	start := time.Now()
	for _, it := range items {
		it.group.started(start)
	}
	a := attempt{q: q, device: device}
	a.run(items, true)
	q.scheduler.mu.Lock()
	end := time.Now()
	q.running--
	if of == short {
		q.ctl.batchDone(end.Sub(start), took.tokens, len(items), end)
	}
	q.scheduler.endLocked(device, of, took.work, a.errors > 0,
		more || of == long || took.tokens*paceTrusts >= q.opt.MaxCost, end)
	q.scheduler.dispatchLocked(end)
	q.scheduler.mu.Unlock()
	if q.opt.BatchDone != nil {
		q.opt.BatchDone(len(items), took.tokens, end.Sub(start))
	}
	if a.nonFinite > 0 && q.opt.NonFinite != nil {
		q.opt.NonFinite(a.nonFinite)
	}
	if a.short && q.opt.Recovered != nil {
		q.opt.Recovered(a.did)
	}
}

// attempt is the run of one batch in its slot, with the errors and recoveries on the way.
type attempt struct {
	q         *Queue
	device    int
	errors    int
	nonFinite int  // items whose results are not finite
	short     bool // the device had too little memory
	did       Recovery
	prefixes  prefixSet // of the whole batch
}

// run runs items and delivers their results. A batch that fails is run again in halves, so that one
// bad item fails only its own group; halving bounds the depth. MakeRoom is called for the whole
// batch and for a single item, but not for the parts in between: they become smaller anyway, and
// MakeRoom would unload models for them.
func (a *attempt) run(items []*Item, whole bool) {
	if whole {
		a.prefixes = prefixesOf(items)
	}
	p := pack(items, &a.prefixes)
	out, err := a.once(p)
	if a.noMemory(err) && (whole || len(items) == 1) && a.q.opt.MakeRoom != nil && a.q.opt.MakeRoom() {
		a.did.Evictions++
		out, err = a.once(p)
	}
	if err != nil {
		a.failed(items, err)
		return
	}
	now := time.Now()
	for i, it := range items {
		var r Result
		for o := range p.Outputs {
			from, n := p.Outputs[o].Offsets[i], int64(it.Specs[o].Bytes)
			r[o] = out[o][from : from+n : from+n]
		}
		bad := p.NonFinite != nil && p.NonFinite[i] != 0
		if bad {
			a.nonFinite++
		}
		it.group.deliver(it.Index, r, bad, now)
	}
}

// once runs p on the device once and checks the sizes of the outputs.
func (a *attempt) once(p *Packed) (Result, error) {
	out, err := a.q.run.RunPacked(context.Background(), a.device, p)
	for o := range p.Outputs {
		if want := p.Outputs[o].Bytes; err == nil && int64(len(out[o])) != want {
			err = fmt.Errorf("batch: the device returned %d bytes of output %d instead of %d",
				len(out[o]), o, want)
		}
	}
	if n := len(p.NonFinite); err == nil && n != 0 && n != len(p.CuSeqlens)-1 {
		err = fmt.Errorf("batch: the device returned %d flags for %d items", n, len(p.CuSeqlens)-1)
	}
	if err != nil {
		a.errors++
	}
	return out, err
}

// failed runs items again in halves, or fails their groups if the error is fatal or there is one
// item.
func (a *attempt) failed(items []*Item, err error) {
	// Also called for a single item, because Fatal must see every error that loses a device.
	fatal := a.q.opt.Fatal != nil && a.q.opt.Fatal(err)
	if fatal {
		a.q.scheduler.lose(a.device)
	}
	if fatal || len(items) == 1 {
		if a.noMemory(err) {
			a.did.Failed += len(items)
		}
		for _, it := range items {
			it.group.Fail(err)
		}
		return
	}
	if a.noMemory(err) {
		a.did.Splits++
	}
	h := len(items) / 2
	a.run(items[:h], false)
	a.run(items[h:], false)
}

func (a *attempt) noMemory(err error) bool {
	short := err != nil && a.q.opt.NoMemory != nil && a.q.opt.NoMemory(err)
	a.short = a.short || short
	return short
}
