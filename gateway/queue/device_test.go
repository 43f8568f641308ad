package queue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/internal/work"
)

// device is a worker of the world that runs batches: it has slices in hand for its credit, as a
// sidecar has, and takes the same time for each batch, full or not, as the null device does.
type device struct {
	credit, batch int // items
	takes         time.Duration
}

// deviceTick is the time between two looks of such a worker.
const deviceTick = time.Millisecond

// runBatches is such a worker until ctx ends.
func (w *world) runBatches(ctx context.Context, id string, d *device) {
	var hand, batch []*stored1
	pulled := map[*stored1]time.Time{}
	items := 0
	var ends time.Time // of the batch that runs
	tick := time.NewTicker(deviceTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if len(batch) > 0 && !now.Before(ends) {
			for _, m := range batch {
				items -= len(m.item.Items)
				go w.answer(ctx, id, m, now.Sub(pulled[m]), d.takes)
				delete(pulled, m)
			}
			batch = nil
		}
		for items < d.credit {
			m := w.pull()
			if m == nil {
				break
			}
			hand, items, pulled[m] = append(hand, m), items+len(m.item.Items), now
		}
		if len(batch) > 0 {
			continue
		}
		n := 0
		for len(hand) > 0 && (n == 0 || n+len(hand[0].item.Items) <= d.batch) {
			n += len(hand[0].item.Items)
			batch, hand = append(batch, hand[0]), hand[1:]
		}
		ends = now.Add(d.takes)
	}
}

// answer sends the result of a slice until it has a receipt.
func (w *world) answer(ctx context.Context, id string, m *stored1, ran, batch time.Duration) {
	item := m.item
	res := &work.Result{WorkItemID: item.WorkItemID, RequestID: item.RequestID, Index: item.Index,
		Attempt: item.Attempt, Success: true, WorkerID: id, Units: &work.Units{},
		ProcessingMS: float64(ran) / 1e6, InferenceMS: float64(batch) / 1e6}
	for range item.Items {
		res.Results = append(res.Results, msgp.AppendInt(nil, 1))
	}
	data, err := res.MarshalMsg(nil)
	if err != nil {
		panic(err)
	}
	if w.request(ctx, item.ReplySubject, data, 20*time.Second) != "" {
		_ = w.Remove(ctx, "", m.seq)
	}
}

// askMany sends a request of n short texts as somebody, cut as those of clients are.
func askMany(ctx context.Context, q *Queue, id string, who asker, n, workers int) error {
	items := make([]msgp.Raw, n)
	text := msgp.AppendString(nil, "a text of sixty bytes, as short ones are in many requests...")
	for i := range items {
		items[i] = text
	}
	cuts := cut(items, q.peek(lane.WorkSubject(modelID)).free(workers), 0, 1<<20, nil)
	l := q.line(lane, modelID)
	defer func() { l.release(time.Now()) }()
	if e := l.refuse(who, q.opt.MaxWait, time.Now()); e != nil {
		return e
	}
	r := newRequest(id, l, admit.Unbounded(ctx), work.Item{Operation: work.Detokenize, RequestID: id,
		ReplySubject: "_INBOX.gw." + id, Total: uint32(len(cuts))}, items, cuts)
	r.who = who
	r.began, r.limit = time.Now(), q.opt.Timeout
	r.late = r.began.Add(r.limit)
	return q.run(r)
}

// flow is a tenant whose requests come at random.
type flow struct {
	who    asker
	rate   float64 // requests in a second
	texts  int
	seed   uint64
	from   time.Duration   // when they begin
	at     []time.Duration // when each came
	waited []time.Duration // for its answer; 0: it was refused
}

// come sends the requests of flows side by side, for a time.
func come(t *testing.T, q *Queue, lasts time.Duration, workers int, flows ...*flow) {
	t.Helper()
	var all, loops sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for _, f := range flows {
		r := rand.New(rand.NewPCG(f.seed, 5))
		f.at, f.waited = nil, nil
		for at := f.from; ; {
			at += time.Duration(r.ExpFloat64() * float64(time.Second) / f.rate)
			if at >= lasts {
				break
			}
			f.at, f.waited = append(f.at, at), append(f.waited, 0)
		}
		loops.Go(func() {
			for i, at := range f.at {
				time.Sleep(time.Until(start.Add(at)))
				all.Go(func() {
					begun := time.Now()
					id := fmt.Sprint("r", f.who.tenant, "-", i)
					err := askMany(t.Context(), q, id, f.who, f.texts, workers)
					mu.Lock()
					defer mu.Unlock()
					switch e := errs.As(err); {
					case err == nil:
						f.waited[i] = time.Since(begun)
					case e.Code != errs.QueueFull:
						t.Errorf("%s, request %d: %v", f.who.tenant, i, err)
					}
				})
			}
		})
	}
	loops.Wait()
	all.Wait()
}

// growth is how much longer requests waited while one tenant asked for ten times as much.
type growth struct {
	often, worst time.Duration // of 99 of 100, and of all
	busy         float64       // the part of the device's items that were texts, while it did
}

// Three tenants whose requests come at random, near saturation: when one asks for ten times as
// much, from the beginning or after it was away, no request of the others waits longer by more than
// the credit window and one device batch, and its own get what they leave. A quarter of a batch is
// for the steps in which the window follows the workers, and for the ticks of this model. A flood
// that begins finds a window that may not fit, and takes half a batch more. Requests of a whole
// batch take one more, because they do not begin with one, and one for the other tenant's, which is
// as large and has as much of a right to go. That is what 99 of 100 requests hold; the others may
// take a batch more.
//
// A request's wait depends on the order of goroutines, which the seed does not decide: with one in
// fifteen orders a small one of 99 in 100 waits 176 to 188 ms longer, where 162.5 are wanted. So
// the bounds are those of the median of three orders. The short form has one order, which the race
// detector makes worse than others, and so a batch more. With a number in SIE_TEST_TURN two of the
// six forms are measured, and all in three turns in a row.
func TestNoQueueGrowsTheWaitOfAnother(t *testing.T) {
	const workers, takes, lasts, settled = 2, 50 * time.Millisecond, 12 * time.Second, 6 * time.Second
	const bound = 2*takes + takes + takes/4 // the credit is two batches
	orders, short := 3, time.Duration(0)
	if testing.Short() {
		orders, short = 1, takes
	}
	mine := testrig.Part(t, 3)
	for i, c := range []struct {
		what            string
		texts, floods   int // of a request
		rate, floodRate float64
		batch           int
		most            time.Duration
	}{
		{"small requests", 4, 4, 48, 48, 16, bound},
		{"small ones beside large ones", 4, 512, 48, 28, 512, bound},
		{"requests of a batch", 512, 512, 12, 12, 512, bound + 2*takes},
	} {
		for seed := range uint64(2) {
			if !mine(i + int(seed)) {
				continue
			}
			away := seed == 1 // before the flood
			measure := func(times float64) (flows [3]*flow) {
				for i := range flows {
					flows[i] = &flow{who: asker{tenant: string(rune('a' + i))}, rate: c.rate, texts: c.texts,
						seed: 3*seed + uint64(i)}
				}
				flows[0].rate, flows[0].texts = c.floodRate*times, c.floods
				if times > 1 && away {
					flows[0].from = settled
				}
				bubble(t, seed, workers, func(o *Options) { o.Fair = true },
					func(t *testing.T, q *Queue, w *world) {
						w.set(func() { w.device = &device{2 * c.batch, c.batch, takes} })
						come(t, q, lasts, workers, flows[:]...)
					})
				return flows
			}
			what := fmt.Sprintf("%s, seed %d", c.what, seed)
			var of []growth
			for range orders {
				usual, flood := measure(1), measure(10)
				var grew []time.Duration
				for k := 1; k < 3; k++ {
					for i, at := range flood[k].at {
						if at > settled && flood[k].waited[i] == 0 {
							t.Errorf("%s: request %d of %s was refused", what, i, flood[k].who.tenant)
						} else if at > settled {
							grew = append(grew, flood[k].waited[i]-usual[k].waited[i])
						}
					}
				}
				slices.Sort(grew)
				g := growth{grew[len(grew)*99/100-1], grew[len(grew)-1],
					busyFor(flood[:], settled, lasts) / (float64(workers*c.batch) / takes.Seconds())}
				t.Logf("%s: the wait of others grew by %v at most, %v in 99 of 100; the device was busy for %.0f %%",
					what, g.worst, g.often, 100*g.busy)
				of = append(of, g)
			}
			most := c.most + short
			if away {
				most += takes / 2
			}
			often := median(of, func(g growth) time.Duration { return g.often })
			worst := median(of, func(g growth) time.Duration { return g.worst })
			if often > most || worst > most+takes {
				t.Errorf("%s: the wait of others grew by %v, and in one of 100 by %v; %v and %v are the bounds",
					what, often, worst, most, most+takes)
			}
			if busy := median(of, func(g growth) float64 { return g.busy }); !away && busy < 0.9 {
				t.Errorf("%s: the device was busy for %.0f %%", what, 100*busy)
			}
		}
	}
}

// median returns the median of a value of each growth.
func median[T cmp.Ordered](of []growth, value func(growth) T) T {
	var values []T
	for _, g := range of {
		values = append(values, value(g))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// busyFor returns the texts that were answered in a second, between two times.
func busyFor(flows []*flow, from, to time.Duration) float64 {
	n := 0
	for _, f := range flows {
		for i, at := range f.at {
			if end := at + f.waited[i]; f.waited[i] > 0 && end > from && end <= to {
				n += f.texts
			}
		}
	}
	return float64(n) / (to - from).Seconds()
}
