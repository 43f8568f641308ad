package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// The times of a box's sidecar.
const (
	boxStep    = 20 * time.Millisecond
	boxCredit  = 6                // slices in hand
	boxPulls   = 8 * time.Second  // that open pulls of a stopped sidecar last
	boxSilence = 6 * time.Second  // of a server, until its sidecar says so
	boxLost    = 18 * time.Second // that a lane counts as one that lost a worker
)

// boxes is a model of a lane's workers, each a sidecar with a server, that can be killed and
// stopped one by one. It belongs to the goroutine of its run; tests use it under mu.
type boxes struct {
	w    *world
	rand *rand.Rand
	all  sync.WaitGroup

	mu    sync.Mutex
	boxes []*box
	alone map[string]int // deaths that were reported alone, by work item id
	text  map[string]int // servers that a text ended, by work item id
	kills int
}

// box is a worker.
type box struct {
	id       string
	epoch    int
	beat     time.Time // of its last heartbeat
	began    time.Time // of its process, if it took another's place
	down     time.Time // the sidecar starts again then; zero: it runs
	frozen   time.Time // SIGSTOP of the sidecar
	thaw     time.Time
	held     []*inHand
	done     map[string]bool // work item ids that it answered
	backs    map[string]int  // give backs to others, by work item id
	serverUp time.Time       // the server runs from then on
	stopped  time.Time       // SIGSTOP of the server; zero: it runs
	goesOn   time.Time
	nextBeat time.Time
}

// inHand is a slice that a box has.
type inHand struct {
	m       *stored1
	item    work.Item
	mark    time.Time
	left    time.Duration
	running bool
	told    bool // its server is silent
}

func newBoxes(w *world, n int, seed uint64) *boxes {
	b := &boxes{w: w, rand: rand.New(rand.NewPCG(seed, 3)), alone: map[string]int{}, text: map[string]int{}}
	for i := range n {
		b.boxes = append(b.boxes, &box{id: fmt.Sprint("w", i), done: map[string]bool{},
			backs: map[string]int{}})
	}
	known := func(worker string) presence {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, x := range b.boxes {
			if x.id == worker && time.Since(x.beat) < work.WorkerStale+tickEvery {
				return presence{live: true, epoch: fmt.Sprint("e", x.epoch), at: x.beat}
			}
		}
		return presence{}
	}
	lost := func(bus.Lane) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, x := range b.boxes {
			silent := time.Since(x.beat)
			if silent > work.WorkerStale && silent < boxLost ||
				!x.began.IsZero() && time.Since(x.began) < boxLost-work.WorkerStale {
				return true
			}
		}
		return false
	}
	w.queue.workers.Store(&known)
	w.queue.losses.Store(&lost)
	return b
}

// run works until ctx ends.
func (b *boxes) run(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		for _, i := range b.rand.Perm(len(b.boxes)) {
			b.step(ctx, b.boxes[i], time.Now())
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(boxStep):
		}
	}
	b.all.Wait()
}

// works reports whether a box takes work.
func (x *box) works(now time.Time) bool {
	return x.down.IsZero() && x.frozen.IsZero() && !now.Before(x.serverUp) &&
		(x.stopped.IsZero() || now.Sub(x.stopped) < boxSilence)
}

func (b *boxes) step(ctx context.Context, x *box, now time.Time) {
	if !x.stopped.IsZero() && !now.Before(x.goesOn) {
		x.stopped = time.Time{}
	}
	switch {
	case !x.down.IsZero() && now.Before(x.down):
		return
	case !x.down.IsZero():
		x.down, x.held, x.began, x.nextBeat = time.Time{}, nil, now, now
		x.epoch++
		x.done, x.backs = map[string]bool{}, map[string]int{}
	case !x.frozen.IsZero() && now.Before(x.thaw):
		if now.Sub(x.frozen) < boxPulls && len(x.held) < boxCredit {
			if m := b.w.pull(); m != nil {
				x.held = append(x.held, &inHand{m: m, item: *m.item, mark: now, left: b.pace()})
			}
		}
		return
	}
	x.frozen = time.Time{}
	if !now.Before(x.nextBeat) {
		x.beat, x.nextBeat = now, now.Add(work.WorkerHeartbeat)
	}
	if x.works(now) {
		b.take(x, now)
	}
	b.marks(x, now)
	if !now.Before(x.serverUp) && x.stopped.IsZero() {
		b.serve(ctx, x)
	}
}

// pace returns how long the server takes for a slice.
func (b *boxes) pace() time.Duration { return time.Duration(50+b.rand.IntN(300)) * time.Millisecond }

// take pulls what the credit allows.
func (b *boxes) take(x *box, now time.Time) {
	for len(x.held) < boxCredit {
		m := b.w.pull()
		if m == nil {
			return
		}
		id := m.item.WorkItemID
		if x.done[id] {
			_ = b.w.Remove(context.Background(), "", m.seq)
			continue
		}
		if i := slices.IndexFunc(x.held, func(h *inHand) bool { return h.item.WorkItemID == id }); i >= 0 {
			x.held[i].item.Attempt = max(x.held[i].item.Attempt, m.item.Attempt)
			continue
		}
		if slices.Contains(m.item.DiedOn, x.id) && x.backs[id] < 8 && b.other(m.item.DiedOn, now) {
			x.backs[id]++
			b.free(m, now.Add(250*time.Millisecond))
			return
		}
		x.held = append(x.held, &inHand{m: m, item: *m.item, mark: now.Add(50 * time.Millisecond),
			left: b.pace()})
	}
}

// other reports whether a box works that is not one of died.
func (b *boxes) other(died []string, now time.Time) bool {
	return slices.ContainsFunc(b.boxes, func(x *box) bool {
		return x.works(now) && !slices.Contains(died, x.id)
	})
}

// free has a message delivered again from a time on.
func (b *boxes) free(m *stored1, at time.Time) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	m.free = at
}

func (b *boxes) marks(x *box, now time.Time) {
	silent := !x.stopped.IsZero() && now.Sub(x.stopped) >= boxSilence
	for _, h := range x.held {
		switch {
		case silent && h.running && !h.told, !now.Before(h.mark):
			h.mark = now.Add(work.MarkInterval)
			state := work.Taken
			if silent && h.running {
				state, h.told = work.ServerSilent, true
			} else {
				b.free(h.m, now.Add(15*time.Second)) // a progress ack
			}
			b.w.send(h.item.ReplySubject, "", b.markOf(x, h, state))
		}
	}
	if silent || now.Before(x.serverUp) { // what was not begun goes back
		x.held = slices.DeleteFunc(x.held, func(h *inHand) bool {
			if !h.running {
				b.free(h.m, now.Add(100*time.Millisecond))
			}
			return !h.running
		})
	}
}

func (b *boxes) markOf(x *box, h *inHand, state string) []byte {
	data, err := (&work.Mark{Kind: work.KindMark, WorkItemID: h.item.WorkItemID, RequestID: h.item.RequestID,
		WorkerID: x.id, WorkerEpoch: fmt.Sprint("e", x.epoch), State: state, Attempt: h.item.Attempt,
		Alone: state == work.ServerDied && h.m.item.Alone}).MarshalMsg(nil)
	if err != nil {
		panic(err)
	}
	return data
}

// serve lets the server go on with what is in it, and begins what may begin: a slice that runs
// alone waits until nothing else runs, and nothing begins beside it.
func (b *boxes) serve(ctx context.Context, x *box) {
	running, solo := 0, false
	for _, h := range x.held {
		running += b2i(h.running)
		solo = solo || h.running && h.m.item.Alone
	}
	for _, alone := range []bool{true, false} {
		for _, h := range x.held {
			if h.running || h.m.item.Alone != alone || solo || alone && running > 0 {
				continue
			}
			h.running, solo = true, alone
			running++
		}
	}
	var ended []*inHand
	for _, h := range x.held {
		if h.running {
			if h.left -= boxStep; h.left <= 0 {
				ended = append(ended, h)
			}
		}
	}
	for _, h := range ended {
		if strings.HasPrefix(textOf(&h.item), "!poison") {
			b.text[h.item.WorkItemID]++
			b.dies(ctx, x)
			return
		}
		x.held = slices.DeleteFunc(x.held, func(o *inHand) bool { return o == h })
		x.done[h.item.WorkItemID] = true
		b.answer(ctx, x, h)
	}
}

func textOf(it *work.Item) string {
	text, _, err := msgp.ReadStringBytes(it.Items[0])
	if err != nil {
		panic(err)
	}
	return text
}

// answer sends a slice's result until it has a receipt.
func (b *boxes) answer(ctx context.Context, x *box, h *inHand) {
	res := &work.Result{WorkItemID: h.item.WorkItemID, RequestID: h.item.RequestID, Index: h.item.Index,
		Attempt: h.item.Attempt, Success: true, WorkerID: x.id, Units: &work.Units{}}
	for _, raw := range h.item.Items {
		text, _, err := msgp.ReadStringBytes(raw)
		if err != nil {
			panic(err)
		}
		res.Results = append(res.Results, msgp.AppendString(nil, "answer to "+text))
	}
	data, err := res.MarshalMsg(nil)
	if err != nil {
		panic(err)
	}
	b.all.Go(func() {
		if b.w.request(ctx, h.item.ReplySubject, data, 20*time.Second) != "" {
			_ = b.w.Remove(ctx, "", h.m.seq)
		}
	})
}

// dies ends a box's server, which starts again soon. Its sidecar tells of what was in it.
func (b *boxes) dies(ctx context.Context, x *box) {
	now := time.Now()
	x.serverUp, x.stopped = now.Add(time.Duration(300+b.rand.IntN(2000))*time.Millisecond), time.Time{}
	for _, h := range x.held {
		if !h.running {
			b.free(h.m, now.Add(100*time.Millisecond))
			continue
		}
		if h.m.item.Alone {
			b.alone[h.item.WorkItemID]++
		}
		mark := b.markOf(x, h, work.ServerDied)
		b.all.Go(func() {
			if b.w.request(ctx, h.item.ReplySubject, mark, time.Minute) != "" {
				_ = b.w.Remove(ctx, "", h.m.seq)
			}
		})
	}
	x.held = nil
}

// The faults. for0 is how long a stopped process stays so.

func (b *boxes) killServer(ctx context.Context, i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.boxes[i]; x.down.IsZero() && x.frozen.IsZero() {
		b.kills++
		b.dies(ctx, x)
	}
}

func (b *boxes) stopServer(i int, last time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boxes[i].stopped, b.boxes[i].goesOn = time.Now(), time.Now().Add(last)
}

// killSidecar ends a sidecar, which starts again after a time.
func (b *boxes) killSidecar(i int, back time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.boxes[i]
	x.down, x.held, x.frozen = time.Now().Add(back), nil, time.Time{}
}

func (b *boxes) stopSidecar(i int, last time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.boxes[i]; x.down.IsZero() {
		x.frozen, x.thaw = time.Now(), time.Now().Add(last)
	}
}

// aloneDeaths returns how many servers ended while a slice was alone in them.
func (b *boxes) aloneDeaths(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alone[id]
}

// byText returns how many servers the text of a slice ended.
func (b *boxes) byText(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text[id]
}
