package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// bench runs f in a bubble of time with a queue over a world.
func bubble(t *testing.T, seed uint64, workers int, change func(*Options),
	f func(t *testing.T, q *Queue, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := Options{Router: "gw"}
		if change != nil {
			change(&o)
		}
		q, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(seed, workers)
		w.queue = q
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { w.deliver(ctx) })
		q.begin(w)
		q.Connected()
		stops := make([]context.CancelFunc, workers)
		for i := range workers {
			var wctx context.Context
			wctx, stops[i] = context.WithCancel(ctx)
			all.Go(func() { w.work(wctx, fmt.Sprint("w", i)) })
		}
		f(t, q, w)
		time.Sleep(time.Minute) // receipts of what nobody waits for
		cancel()
		all.Wait()
		q.mu.Lock()
		if len(q.requests) != 0 {
			t.Errorf("%d requests are left", len(q.requests))
		}
		for _, l := range q.lines {
			if l.untaken != 0 || l.unanswered != 0 || l.waiting != 0 || l.requests != 0 {
				t.Errorf("left: %d untaken, %d unanswered, %d waiting, %d requests",
					l.untaken, l.unanswered, l.waiting, l.requests)
			}
		}
		q.mu.Unlock()
		q.forget(time.Now().Add(2 * lineIdle))
		if len(q.lines) != 0 || len(q.pools) != 0 {
			t.Errorf("%d lines and %d pools are left", len(q.lines), len(q.pools))
		}
		q.Close()
	})
}

// ask sends texts through the queue, without a backend.
func ask(ctx context.Context, q *Queue, id string, texts []string, per int) ([]string, error) {
	var items []msgp.Raw
	for _, t := range texts {
		items = append(items, msgp.AppendString(nil, t))
	}
	var cuts []slice
	for first := 0; first < len(items); first += per {
		cuts = append(cuts, slice{first: first, end: min(first+per, len(items)), bytes: 1000})
	}
	w := admit.Unbounded(ctx)
	l := q.line(lane, modelID)
	defer func() { l.release(time.Now()) }()
	if e := l.refuse(asker{}, q.opt.MaxWait, time.Now()); e != nil {
		return nil, e
	}
	r := newRequest(id, l, w, work.Item{Operation: work.Detokenize, RequestID: id,
		ReplySubject: "_INBOX.gw." + id, Total: uint32(len(cuts))}, items, cuts)
	r.began, r.limit = time.Now(), q.opt.Timeout
	r.late = r.began.Add(r.limit)
	if err := q.run(r); err != nil {
		return nil, err
	}
	out := make([]string, len(texts))
	err := r.each(func(i int, raw []byte) (err error) {
		out[i], _, err = msgp.ReadStringBytes(raw)
		return err
	})
	return out, err
}

// seeds returns the seeds of a random test: those of the environment, or some.
func seeds(n int) []uint64 {
	if s, err := strconv.ParseUint(os.Getenv("SIE_SEED"), 10, 64); err == nil {
		return []uint64{s}
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = rand.Uint64N(1 << 40)
	}
	return out
}

// Whatever is lost in the first minute, every request is answered as if nothing had been: each item
// once, in its place. Only poison gets an error, the one of a dead letter, after three servers.
func TestNothingIsLost(t *testing.T) {
	for _, seed := range seeds(30) {
		t.Run(fmt.Sprint("SIE_SEED=", seed), func(t *testing.T) {
			bubble(t, seed, 3, func(o *Options) { o.MaxWait = -1 }, func(t *testing.T, q *Queue, w *world) {
				nothingIsLost(t, q, w, rand.New(rand.NewPCG(seed, 2)))
			})
		})
	}
}

func nothingIsLost(t *testing.T, q *Queue, w *world, rnd *rand.Rand) {
	var all sync.WaitGroup
	for n := range 60 {
		at := time.Duration(rnd.IntN(60_000)) * time.Millisecond
		count, per := 1+rnd.IntN(40), 1+rnd.IntN(8)
		poison, failing := rnd.IntN(30) == 0, rnd.IntN(15) == 0
		leaves := rnd.IntN(15) == 0
		all.Go(func() {
			time.Sleep(at)
			texts := make([]string, count)
			for i := range texts {
				texts[i] = fmt.Sprint("text ", n, ".", i)
			}
			id := fmt.Sprint("r", n)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			switch {
			case poison:
				texts[count/2] = "!poison"
			case failing:
				texts[count-1], texts[count/2] = "!error last", "!error first"
			case leaves:
				time.AfterFunc(500*time.Millisecond, func() { cancel(admit.ErrClientGone) })
			}
			begun := time.Now()
			got, err := ask(ctx, q, id, texts, per)
			if took := time.Since(begun); took > q.opt.Timeout {
				t.Errorf("%s took %v", id, took)
			}
			e := &errs.Error{}
			errors.As(err, &e)
			switch {
			case leaves && errors.Is(err, admit.ErrClientGone):
			case poison:
				slice := id + "." + fmt.Sprint(count/2/per)
				killed, alone := w.deaths(slice), w.deathsAlone(slice)
				buried := strings.Contains(e.Message, "dead letter '"+id+".") && e.RetryAfter == 0
				// Where the broker lost it while a worker had it, two copies ran beside others,
				// and one that runs when it is decided ends one server more (SIE_SEED=802454069287,
				// under the race detector, once in some 300 seeds).
				ended := strings.Contains(e.Message, "servers ended") && alone < aloneDeaths
				if !(buried && alone >= aloneDeaths && killed <= maxDeaths+1 ||
					ended && killed >= maxDeaths) {
					t.Errorf("poison %s: %v after %d servers, %d alone", id, err, killed, alone)
				}
			case failing:
				if e.Message != fmt.Sprintf("Field 'items[%d]': !error first", count/2) && count > 1 {
					t.Errorf("%s: %v, want the error of item %d", id, err, count/2)
				}
			case err != nil:
				t.Errorf("%s: %v", id, err)
			default:
				for i := range texts {
					if got[i] != "answer to "+texts[i] {
						t.Errorf("%s: %q for %q", id, got[i], texts[i])
					}
				}
			}
		})
	}
	for range 12 { // faults of the first minute
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		switch rnd.IntN(6) {
		case 0:
			w.lose()
		case 1:
			w.connect(false)
			time.Sleep(time.Duration(rnd.IntN(8000)) * time.Millisecond)
			if rnd.IntN(2) == 0 {
				w.lose()
			}
			w.connect(true)
		case 2:
			w.mu.Lock()
			w.consumer = false
			w.mu.Unlock()
		case 3:
			w.mu.Lock()
			w.loss = rnd.Float64() / 2
			w.mu.Unlock()
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			w.mu.Lock()
			w.loss = 0
			w.mu.Unlock()
		case 4: // a message that was acknowledged and not run
			if m := w.pull(); m != nil {
				_ = w.Remove(t.Context(), "", m.seq)
			}
		case 5: // a worker that takes a message and dies
			if m := w.pull(); m != nil {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				w.run(ctx, "dying", m)
				cancel()
			}
		}
	}
	all.Wait()
}
