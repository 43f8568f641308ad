package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// seeds returns the seeds of a test of random operations: a few, or many with SIE_LONG_TESTS=1.
// SIE_SEED chooses one. The test prints each seed before its run, because a deadlock, a panic or
// the time limit ends the process without any output of the test.
func seeds(t *testing.T, few, many int) (out []uint64) {
	t.Helper()
	if s := os.Getenv("SIE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	n := few
	if os.Getenv("SIE_LONG_TESTS") == "1" {
		n = many
	}
	for i := range n {
		seed := uint64(i)
		if i >= few/2 {
			seed = rand.Uint64()
		}
		out = append(out, seed)
	}
	return out
}

// A device and a plain model of it agree after random requests, cancellations, deadlines, failures,
// lost devices and closing queues. No item is lost, delivered twice or overtaken beyond the turns.
// No slot is free while due work waits, no lane exceeds its bounds, and a closed queue leaves
// nothing behind.
func TestAgainstAPlainModel(t *testing.T) {
	for _, seed := range seeds(t, 60, 3000) {
		if t.Failed() {
			break
		}
		fmt.Printf("SIE_SEED=%d\n", seed)
		synctest.Test(t, func(t *testing.T) { newWorld(t, seed).play(120) })
	}
}

var (
	errBad     = errors.New("a bad item")
	errShort   = errors.New("no memory")
	errDevice  = errors.New("the device is lost")
	errLeft    = errors.New("the client left")
	errRemoved = errors.New("the model was unloaded")
)

// world is a device under random use. mu guards the records that runners and requests make for the
// model.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	seed uint64
	dev  *Scheduler

	mu      sync.Mutex
	plain   plain
	queues  []*Queue
	lanes   map[*Queue][laneKinds]*plainLane
	started []*plainBatch // since the last call of look; their items are not yet taken
	ended   []*plainBatch
	flying  []*plainBatch // those that have not ended
	items   map[int32]*plainItem
	bad     map[int32]bool
	dying   int // the device that fails its batches, or -1
	cancels []context.CancelCauseFunc

	events   chan struct{} // something happened: call look
	requests sync.WaitGroup
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t:      t,
		rng:    rand.New(rand.NewPCG(seed, 1)),
		seed:   seed,
		dying:  -1,
		items:  make(map[int32]*plainItem),
		bad:    make(map[int32]bool),
		lanes:  make(map[*Queue][laneKinds]*plainLane),
		events: make(chan struct{}, 1<<16),
	}
	w.plain = plain{
		devices: 1 + w.rng.IntN(3),
		slots:   1 + w.rng.IntN(3),
		lost:    make(map[int]bool),
		running: make(map[*plainBatch]bool),
	}
	w.dev = NewScheduler(w.plain.devices, w.plain.slots)
	for range 1 + w.rng.IntN(3) {
		w.open()
	}
	return w
}

func (w *world) open() {
	o := Options{
		MaxCost:     200 + w.rng.IntN(2000),
		MaxRequests: 2 + w.rng.IntN(10),
		MaxWait:     time.Duration(1+w.rng.IntN(30)) * time.Millisecond,
		Coalesce:    time.Duration(1+w.rng.IntN(20)) * time.Millisecond,
		MaxItems:    8 + w.rng.IntN(40),
		MaxBytes:    4 * int64(800+w.rng.IntN(9000)),
		Adaptive:    AdaptiveOptions{Disabled: true},
		Fatal:       func(err error) bool { return errors.Is(err, errDevice) },
		NoMemory:    func(err error) bool { return errors.Is(err, errShort) },
		MakeRoom:    func() bool { return false },
	}
	if w.rng.IntN(3) == 0 {
		o.MaxBacklog = time.Duration(1+w.rng.IntN(5000)) * time.Millisecond
		o.MaxCost = min(o.MaxCost, runTokens) // so that only the number of tokens makes a batch full
	}
	r := &worldRunner{w: w}
	q := NewQueue(w.dev, r, o)
	r.q = q
	w.queues = append(w.queues, q)
	o = q.opt
	w.lanes[q] = [laneKinds]*plainLane{{kind: short, opt: o, maxItems: o.MaxItems, maxBytes: o.MaxBytes},
		{kind: long, opt: o, maxItems: max(1, o.MaxItems/2), maxBytes: o.MaxBytes / 2}}
	w.plain.lanes = append(w.plain.lanes, w.lanes[q][short], w.lanes[q][long])
}

// worldRunner runs the batches of one queue. How long a batch runs and how it ends depends only on
// its items, so a seed determines everything.
type worldRunner struct {
	w *world
	q *Queue
}

func (r *worldRunner) RunPacked(_ context.Context, device int, p *Packed) (Result, error) {
	w := r.w
	var ids []int32
	out, of := make([]byte, p.Outputs[0].Bytes), short
	for i := range p.CuSeqlens[1:] {
		first, n := p.IDs[p.CuSeqlens[i]], int(p.CuSeqlens[i+1]-p.CuSeqlens[i])
		ids = append(ids, first)
		binary.LittleEndian.PutUint32(out[p.Outputs[0].Offsets[i]:], uint32(first))
		if n > longTokens {
			of = long
		}
	}
	w.mu.Lock()
	b := w.part(device, ids)
	if b == nil {
		b = &plainBatch{lane: w.lanes[r.q][of], device: device, ids: ids}
		w.started, w.flying = append(w.started, b), append(w.flying, b)
		w.events <- struct{}{}
	}
	var err error
	for _, id := range ids {
		if w.bad[id] {
			err = errBad
		}
	}
	w.mu.Unlock()
	// About ten milliseconds a token, so that an item of more than 512 tokens is long even where
	// the measured pace is many times the real one: a stretch counts a batch whole that began
	// before it.
	rng := rand.New(rand.NewPCG(w.seed, uint64(ids[0])))
	time.Sleep(time.Duration(float64(len(p.IDs)) * (5 + 10*rng.Float64()) * float64(time.Millisecond)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(ids) > 1 && rng.IntN(12) == 0 {
		err = errShort
	}
	if w.dying == device {
		err = errDevice
	}
	if err == nil {
		for _, id := range ids {
			if w.items[id].ran++; w.items[id].ran > 1 {
				w.t.Errorf("item %d ran twice", id)
			}
		}
	}
	last := ids[len(ids)-1] == b.ids[len(b.ids)-1] // halves run in order
	if last && (err == nil || len(ids) == 1 || errors.Is(err, errDevice)) {
		w.flying = slices.DeleteFunc(w.flying, func(o *plainBatch) bool { return o == b })
		w.ended = append(w.ended, b) // its slot is free before time goes on
		w.events <- struct{}{}
	}
	return Result{out}, err
}

// part returns the running batch that contains those items; they may be one of its halves.
func (w *world) part(device int, ids []int32) *plainBatch {
	for _, b := range w.flying {
		if b.device == device && slices.Contains(b.ids, ids[0]) {
			return b
		}
	}
	return nil
}

// play does n random operations, calls look whenever something has happened, and returns when all
// requests have ended.
func (w *world) play(n int) {
	for range n {
		w.until(time.Duration(w.rng.IntN(int(20 * time.Millisecond))))
		w.look()
		w.operate()
		w.look()
		if w.t.Failed() {
			break
		}
	}
	w.settle()
	for _, cancel := range w.cancels {
		cancel(errLeft)
	}
	for _, q := range slices.Clone(w.queues) {
		w.close(q)
	}
	w.settle()
	synctest.Wait()
	if n := w.dev.InFlight(); n != 0 || len(w.dev.lanes) != 0 {
		w.t.Errorf("%d slots taken and %d lanes listed at the end", n, len(w.dev.lanes))
	}
}

// settle waits until every request has ended.
func (w *world) settle() {
	done := make(chan struct{})
	go func() { w.requests.Wait(); close(done) }()
	for end := time.After(time.Hour); ; {
		select {
		case <-w.events:
			if !w.t.Failed() {
				w.look()
			}
			continue
		case <-done:
		case <-end:
			w.t.Error("a request never ends")
		}
		return
	}
}

// until lets time pass and calls look on every event.
func (w *world) until(d time.Duration) {
	for end := time.After(d); ; {
		select {
		case <-w.events:
			w.look()
		case <-end:
			return
		}
	}
}

func (w *world) operate() {
	switch x := w.rng.IntN(100); {
	case x < 80:
		w.request(w.queues[w.rng.IntN(len(w.queues))])
	case x < 92 && len(w.cancels) > 0:
		w.cancels[w.rng.IntN(len(w.cancels))](errLeft)
	case x < 95:
		w.mu.Lock()
		w.dying = w.rng.IntN(w.plain.devices)
		w.mu.Unlock()
	case x < 98:
		q := w.queues[w.rng.IntN(len(w.queues))]
		w.close(q)
		w.open()
	default:
		w.until(time.Duration(w.rng.IntN(int(3 * time.Second))))
	}
}

// request submits a first chunk without wait and up to three more with wait, as a job does.
func (w *world) request(q *Queue) {
	ctx, cancel := context.WithCancelCause(w.t.Context())
	w.cancels = append(w.cancels, cancel)
	if w.rng.IntN(5) == 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(1+w.rng.IntN(int(3*time.Second))))
		_ = stop
	}
	var chunks [][]Item
	for range 1 + max(0, w.rng.IntN(6)-2) {
		var c []Item
		for range 1 + w.rng.IntN(9) {
			n := 1 + w.rng.IntN(150)
			if w.rng.IntN(10) == 0 {
				n = longTokens + 1 + w.rng.IntN(700)
			}
			id := int32(len(w.items) + 1)
			w.mu.Lock()
			w.items[id], w.bad[id] = &plainItem{id: id, tokens: n}, w.rng.IntN(60) == 0
			w.mu.Unlock()
			it := text(id, n)
			it.Index = len(c)
			c = append(c, it)
		}
		chunks = append(chunks, c)
	}
	if first := w.submit(ctx, q, chunks[0], false); first == nil {
		return
	} else {
		w.requests.Go(func() {
			groups := []*Group{first}
			for _, c := range chunks[1:] {
				time.Sleep(time.Duration(1 + 7919*int(c[0].IDs[0])%1_000_000)) // each at a different moment
				if g := w.submit(ctx, q, c, true); g != nil {
					groups = append(groups, g)
				}
			}
			for i, g := range groups {
				w.finished(g, chunks[i])
			}
		})
	}
}

// submit queues a chunk, first in the model and then in the queue.
func (w *world) submit(ctx context.Context, q *Queue, chunk []Item, wait bool) *Group {
	g := NewGroup(ctx, len(chunk))
	w.mu.Lock()
	lanes := w.lanes[q]
	var parts [laneKinds][]*plainItem
	fits := true
	for i := range chunk {
		it := w.items[chunk[i].IDs[0]]
		it.group = g
		of := short
		if it.tokens > longTokens {
			of = long
		}
		parts[of] = append(parts[of], it)
	}
	for c, l := range lanes {
		fits = fits && (len(parts[c]) == 0 || len(l.waiting) == 0 && l.fits(parts[c]))
	}
	before := [laneKinds]int{len(lanes[short].items), len(lanes[long].items)}
	for c, l := range lanes {
		switch {
		case len(parts[c]) == 0 || !wait && !fits:
		case len(l.waiting) == 0 && l.fits(parts[c]):
			l.join(parts[c])
		case wait:
			l.waiting = append(l.waiting, parts[c])
		}
	}
	w.mu.Unlock()

	err := q.Submit(ctx, g, chunk, wait)

	w.mu.Lock()
	defer w.mu.Unlock()
	var full *FullError
	switch {
	case err == nil && !wait && !fits:
		w.t.Errorf("a request was taken for which there is no room, or which overtakes one that waits")
	case err == nil || wait && (ctx.Err() != nil || errors.Is(err, ErrClosed)):
		if err != nil { // its waiting items are gone
			for _, l := range lanes {
				l.waiting = slices.DeleteFunc(l.waiting, func(c []*plainItem) bool { return c[0].group == g })
				l.admit()
			}
			return nil
		}
		return g
	case errors.As(err, &full) && !wait:
		if fits && (full.Wait <= q.opt.MaxBacklog || q.opt.MaxBacklog == 0 || before == [laneKinds]int{}) {
			w.t.Errorf("refused: %v, with %v items queued", full, before)
		}
		for _, l := range lanes {
			l.items = slices.DeleteFunc(l.items, func(it *plainItem) bool { return it.group == g })
			if len(l.items) > 0 {
				l.arrived = l.items[len(l.items)-1].at
			}
		}
	default:
		w.t.Errorf("submit, wait %v: %v", wait, err)
	}
	return nil
}

// finished checks the results or the error of a group.
func (w *world) finished(g *Group, chunk []Item) {
	res, err := g.Wait()
	if err == nil {
		for i := range chunk {
			if id := int32(binary.LittleEndian.Uint32(res[i][0])); id != chunk[i].IDs[0] {
				w.t.Errorf("item %d got the result of %d", chunk[i].IDs[0], id)
			}
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := slices.ContainsFunc(chunk, func(it Item) bool { return w.bad[it.IDs[0]] })
	switch {
	case errors.Is(err, errBad) && bad, errors.Is(err, errLeft), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, ErrExpired), errors.Is(err, errDevice) && w.dying >= 0, errors.Is(err, errRemoved),
		errors.Is(err, ErrClosed), g.ctx.Err() != nil:
	default:
		w.t.Errorf("a request failed with %v", err)
	}
}

// close closes a queue, as unloading a model does.
func (w *world) close(q *Queue) {
	w.queues = slices.DeleteFunc(w.queues, func(o *Queue) bool { return o == q })
	w.mu.Lock()
	for _, l := range w.lanes[q] {
		l.items, l.waiting = nil, nil
	}
	w.mu.Unlock()
	w.requests.Go(func() {
		q.Close(errRemoved)
		w.events <- struct{}{}
		w.dev.mu.Lock()
		defer w.dev.mu.Unlock()
		if q.running != 0 || slices.ContainsFunc(w.dev.lanes, func(l *lane) bool { return l.q == q }) {
			w.t.Error("a closed queue left something behind")
		}
	})
}

// look waits until nothing moves at this moment, updates the model to the state of the device, and
// compares the two.
func (w *world) look() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	for device := range w.dev.devices {
		w.plain.lost[device] = w.dev.devices[device].lost
	}
	for _, b := range w.ended {
		delete(w.plain.running, b)
	}
	slices.SortFunc(w.started, func(a, b *plainBatch) int { return int(a.ids[0]) - int(b.ids[0]) })
	for _, b := range w.started {
		w.begins(b)
	}
	w.started, w.ended = nil, nil
	for q, lanes := range w.lanes {
		for c, l := range lanes {
			w.same(&q.lanes[c], l)
		}
	}
	for _, l := range w.plain.lanes {
		free, idle := w.plain.eligible(l.kind)
		if free && l.due(idle) {
			w.t.Errorf("a slot is free while %d items of class %d are due", len(l.items), l.kind)
		}
		owed := l.due(false)
		if !owed || !l.owed {
			l.passed = make(map[*plainLane]int)
		}
		l.owed = owed
	}
}

// begins moves a batch from its lane to a slot.
func (w *world) begins(b *plainBatch) {
	var err error
	if b.items, err = b.lane.take(b.ids); err != nil {
		w.t.Error(err)
	}
	b.lane.admit()
	tokens, longs := 0, 0
	for _, it := range b.items {
		tokens += it.tokens
		if it.tokens > longTokens {
			longs++
		}
	}
	if tokens > b.lane.opt.MaxCost && len(b.items) > 1 || longs != 0 && longs != len(b.items) {
		w.t.Errorf("a batch of %d items, %d of them long, and %d tokens", len(b.items), longs, tokens)
	}
	if w.plain.lost[b.device] {
		w.t.Errorf("a batch began on the lost device %d", b.device)
	}
	may := make(map[*plainLane]bool)
	for _, l := range w.plain.lanes {
		may[l] = w.plain.mayHave(l, b.device)
	}
	w.plain.running[b] = true
	busy, longBatches := 0, 0
	for o := range w.plain.running {
		if o.device == b.device {
			busy++
			longBatches += int(o.lane.kind)
		}
	}
	if busy > w.plain.slots || longBatches > 1 {
		w.t.Errorf("%d batches on device %d, %d of them long", busy, b.device, longBatches)
	}
	for _, l := range w.plain.lanes {
		// at the same moment
		hasTurn := slices.ContainsFunc(w.started, func(o *plainBatch) bool { return o.lane == l })
		if !hasTurn && l.owed && may[l] && l.due(false) {
			if l.passed[b.lane]++; l.passed[b.lane] > 1 {
				w.t.Errorf("a lane of class %d that was due was passed by %d batches of one of class %d",
					l.kind, l.passed[b.lane], b.lane.kind)
			}
		}
	}
	b.lane.owed = false // and starts to wait again
}

// same compares a lane with the model's lane. The model learns here which items were dropped
// without a batch.
func (w *world) same(real *lane, l *plainLane) {
	for len(l.items) > 0 && (len(real.items) == 0 || real.items[0].IDs[0] != l.items[0].id) &&
		l.items[0].gone() {
		l.items = l.items[1:]
		l.admit()
	}
	var have, want []int32
	for _, it := range real.items {
		have = append(have, it.IDs[0])
	}
	for _, it := range l.items {
		want = append(want, it.id)
	}
	waiting := 0
	for _, c := range l.waiting {
		waiting += len(c)
	}
	for _, c := range real.waiting {
		waiting -= c.load.count
	}
	if !slices.Equal(have, want) || waiting != 0 || real.tokens != l.tokens() || real.count != len(want) {
		w.t.Errorf("class %d: items %v are queued, want %v; %d too few wait; %d tokens, want %d",
			l.kind, have, want, waiting, real.tokens, l.tokens())
	}
}
