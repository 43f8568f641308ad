package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxOutput bounds each output of a batch unless Options say otherwise: what slots and arena grow to stays when the batch is
// gone, and short texts with wide rows, such as sparse ones, would make it thousands of rows.
const MaxOutput = 64 << 20

// Options bound a queue and say when its batches close. Zero fields take the defaults in brackets.
type Options struct {
	MaxCost       int           // tokens of a batch [16,384]
	MaxRequests   int           // items at which a batch may leave [64]
	MaxWait       time.Duration // initial adaptive wait of the oldest item [15 ms]
	Coalesce      time.Duration // a pause in arrivals that closes a batch [15 ms, at most CoalesceRatio of the wait]
	CoalesceRatio float64       // [0.5]
	IdleCoalesce  time.Duration // pause awaited on an idle device [0: a lone query leaves at once]
	MaxItems      int           // queued items [2,048]
	MaxBytes      int64         // queued token ids in bytes [64 MiB]
	MaxSeqs       int           // items of a batch the program can take [4,096]
	MaxOutput     int64         // bytes of one output of a batch of several items [MaxOutput]
	MaxQueryRows  int           // rows of a batch's queries together [0: no item has a query]
	Adaptive      AdaptiveOptions
	// Fatal, if set, is told of every error of a batch and says whether it concerns the whole device: running the batch
	// again in halves is then pointless.
	Fatal func(error) bool
	// NoMemory, if set, says whether an error of a batch means that the device had too little memory for it. Such a batch
	// is run again as it is when MakeRoom, if set, frees some, and then in halves. MakeRoom may block.
	NoMemory func(error) bool
	MakeRoom func() bool
	// Recovered, if set, is told what became of every batch that met NoMemory; called from a batch's goroutine.
	Recovered func(Recovery)
	// BatchDone, if set, is told of every batch that ran; called from a batch's goroutine.
	BatchDone func(items, tokens int, run time.Duration)
}

// Recovery is what was done for a batch that the device had too little memory for.
type Recovery struct {
	Evictions int // times that MakeRoom freed something
	Splits    int // times that a batch or a part of it was cut in halves
	Failed    int // items that there is no memory for even alone
}

func (o *Options) setDefaults() {
	if o.MaxCost == 0 {
		o.MaxCost = 16384
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 64
	}
	if o.MaxWait == 0 {
		o.MaxWait = 15 * time.Millisecond
	}
	if o.Coalesce == 0 {
		o.Coalesce = 15 * time.Millisecond
	}
	if o.CoalesceRatio == 0 {
		o.CoalesceRatio = 0.5
	}
	if o.MaxItems == 0 {
		o.MaxItems = 2048
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.MaxSeqs == 0 {
		o.MaxSeqs = 4096
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = MaxOutput
	}
}

// Errors of Submit and of groups whose queue goes away.
var (
	ErrFull    = errors.New("batch: queue is full")
	ErrClosed  = errors.New("batch: queue is closed")
	ErrExpired = errors.New("batch: the item's deadline passed while it was queued")
)

// Queue holds the waiting items of one program. Its methods are safe for concurrent use.
type Queue struct {
	opt Options
	dev *Device
	run Runner

	mu      sync.Mutex // guards the fields below
	items   []*Item    // in order of arrival
	cost    int
	bytes   int64
	arrived time.Time     // of the newest item
	room    chan struct{} // closed and replaced when items leave
	ctl     *controller
	running int // batches taken and not done
	closed  bool

	wake    chan struct{} // one pending wake-up is enough
	stopped chan struct{}
	batches sync.WaitGroup
}

// NewQueue starts a queue that runs its batches with run, within dev's slots and on the card whose slot it gets.
func NewQueue(dev *Device, run Runner, opt Options) *Queue {
	opt.setDefaults()
	q := &Queue{opt: opt, dev: dev, run: run, room: make(chan struct{}), wake: make(chan struct{}, 1),
		stopped: make(chan struct{}), ctl: newController(opt.Adaptive, opt.MaxWait, opt.MaxCost)}
	dev.add(q)
	go q.loop()
	return q
}

// Submit queues the items of g, all or none. When they do not fit it returns ErrFull at once, or waits for room until
// ctx ends if wait is set: a request's first items are offered, its later ones wait their turn. Items must number at
// most MaxItems.
func (q *Queue) Submit(ctx context.Context, g *Group, items []Item, wait bool) error {
	var bytes int64
	cost := 0
	for i := range items {
		cost += len(items[i].IDs)
	}
	bytes = 4 * int64(cost)
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return ErrClosed
		}
		fits := len(q.items)+len(items) <= q.opt.MaxItems && q.bytes+bytes <= q.opt.MaxBytes
		if fits || len(q.items) == 0 {
			now := time.Now()
			for i := range items {
				items[i].group, items[i].at = g, now
				q.items = append(q.items, &items[i])
			}
			q.cost += cost
			q.bytes += bytes
			q.arrived = now
			q.mu.Unlock()
			q.poke()
			return nil
		}
		room := q.room
		q.mu.Unlock()
		if !wait {
			return ErrFull
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Room reports whether n items would fit now, counted without their tokens: a cheap look before the work of making them,
// so that an overloaded server spends little on what it will refuse. Submit decides.
func (q *Queue) Room(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0 || (len(q.items)+n <= q.opt.MaxItems && q.bytes < q.opt.MaxBytes)
}

// Full reports that not one item more fits, whatever its size.
func (q *Queue) Full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) >= q.opt.MaxItems
}

// Idle reports that nothing is queued and no batch is in flight.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0 && q.running == 0
}

// RequestDone tells the latency controller how long a whole request took.
func (q *Queue) RequestDone(total time.Duration) {
	q.mu.Lock()
	q.ctl.requestDone(total)
	q.mu.Unlock()
}

// Stats is a snapshot of a queue.
type Stats struct {
	Items, Tokens int
	Calibrated    bool
	TargetP50     float64 // ms
	Wait          time.Duration
	BatchCost     int
	P50           float64 // ms
	Headroom      float64 // ms
	Fill          float64
}

// Stats returns a snapshot.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.ctl
	return Stats{Items: len(q.items), Tokens: q.cost, Calibrated: c.calibrated, TargetP50: c.target, Wait: c.wait,
		BatchCost: c.cost, P50: c.p50, Headroom: c.headroom, Fill: c.fill.mean()}
}

// Close refuses new items, fails the queued ones with err, waits for the batches in flight and stops the goroutine.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		<-q.stopped
		return
	}
	q.closed = true
	left := q.items
	q.items, q.cost, q.bytes = nil, 0, 0
	close(q.room)
	q.room = make(chan struct{})
	q.mu.Unlock()
	for _, it := range left {
		it.group.Fail(err)
	}
	q.poke()
	<-q.stopped
	q.batches.Wait()
	q.dev.remove(q)
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) loop() {
	defer close(q.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		idle, free := q.dev.state(q)
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return
		}
		due, after := q.dueLocked(now, idle, free)
		q.mu.Unlock()
		if due {
			if card, ok := q.dev.acquire(q); ok {
				if b := q.take(now); len(b) > 0 {
					q.batches.Add(1)
					go q.runBatch(card, b)
				} else {
					q.dev.release(card)
				}
				continue
			}
		}
		timer.Reset(after)
		select {
		case <-q.wake:
		case <-timer.C:
		}
	}
}

const forever = time.Hour // a wake-up ends it

// dueLocked says whether a batch should leave now, or after which time to look again.
func (q *Queue) dueLocked(now time.Time, idle, free bool) (bool, time.Duration) {
	if len(q.items) == 0 {
		return false, forever
	}
	if !free {
		q.dev.wait(q)
		return false, forever
	}
	if q.cost >= q.ctl.cost || len(q.items) >= q.opt.MaxRequests {
		return true, 0
	}
	oldest, newest := now.Sub(q.items[0].at), now.Sub(q.arrived)
	wait := q.ctl.wait
	pause := min(q.opt.Coalesce, time.Duration(q.opt.CoalesceRatio*float64(wait)))
	if idle {
		pause = q.opt.IdleCoalesce
	}
	if oldest >= wait || newest >= pause {
		return true, 0
	}
	return false, min(wait-oldest, pause-newest)
}

// take removes the next batch from the queue, dropping items that are no longer worth running.
func (q *Queue) take(now time.Time) []*Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*Item
	cost, n := 0, 0
	var queries querySet
	var sizes outputSizes
	for _, it := range q.items {
		t := len(it.IDs)
		if it.group.gone(now) {
			it.group.Fail(ErrExpired)
		} else {
			if len(out) > 0 && (cost+t > q.ctl.cost || cost+t > q.opt.MaxCost || len(out) == q.opt.MaxSeqs ||
				queries.with(it.Query) > q.opt.MaxQueryRows || sizes.with(it) > q.opt.MaxOutput) {
				break
			}
			queries.add(it.Query)
			sizes.add(it)
			out = append(out, it)
			cost += t
		}
		q.cost -= t
		q.bytes -= 4 * int64(t)
		n++
	}
	clear(q.items[:n])
	q.items = q.items[n:]
	if len(q.items) == 0 {
		q.items = nil
	}
	if len(out) > 0 {
		q.running++
	}
	if n > 0 {
		close(q.room)
		q.room = make(chan struct{})
	}
	return out
}

// runBatch owns one slot of the card for one batch.
func (q *Queue) runBatch(card int, items []*Item) {
	defer q.batches.Done()
	start := time.Now()
	for _, it := range items {
		it.group.started(start)
	}
	a := attempt{q: q, card: card}
	tokens := a.run(items, true)
	end := time.Now()
	q.dev.release(card)
	q.mu.Lock()
	q.running--
	q.ctl.batchDone(end.Sub(start), tokens, len(items), end)
	q.mu.Unlock()
	if q.opt.BatchDone != nil {
		q.opt.BatchDone(len(items), tokens, end.Sub(start))
	}
	if a.short && q.opt.Recovered != nil {
		q.opt.Recovered(a.did)
	}
}

// attempt is a batch on its way through one slot, and what its errors asked for.
type attempt struct {
	q     *Queue
	card  int
	short bool // the device had too little memory
	did   Recovery
}

// run runs items and delivers their results. A batch that fails is run again in halves, so that one bad item fails only
// its own group; the depth is bounded by the halving. Memory is made for the whole batch and for an item that is alone,
// not for the parts between: they get smaller anyway, and what is unloaded for them would be missed.
func (a *attempt) run(items []*Item, whole bool) (tokens int) {
	p := pack(items)
	out, err := a.once(p)
	if a.noMemory(err) && (whole || len(items) == 1) && a.q.opt.MakeRoom != nil && a.q.opt.MakeRoom() {
		a.did.Evictions++
		out, err = a.once(p)
	}
	tokens = len(p.IDs)
	if err != nil {
		a.failed(items, err)
		return tokens
	}
	now := time.Now()
	for i, it := range items {
		var r Result
		for o := range p.Outputs {
			from, n := p.Outputs[o].Offsets[i], int64(it.Specs[o].Bytes)
			r[o] = out[o][from : from+n : from+n]
		}
		it.group.deliver(it.Index, r, now)
	}
	return tokens
}

// once runs p on the card.
func (a *attempt) once(p *Packed) (Result, error) {
	out, err := a.q.run.RunPacked(context.Background(), a.card, p)
	for o := range p.Outputs {
		if want := p.Outputs[o].Bytes; err == nil && int64(len(out[o])) != want {
			err = fmt.Errorf("batch: the device returned %d bytes of output %d instead of %d", len(out[o]), o, want)
		}
	}
	return out, err
}

// failed cuts items in halves, or tells their groups.
func (a *attempt) failed(items []*Item, err error) {
	// Asked of a single item's error too: it tells who watches the device.
	fatal := a.q.opt.Fatal != nil && a.q.opt.Fatal(err)
	if fatal {
		a.q.dev.lose(a.card)
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
