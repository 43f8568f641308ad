package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/work"
)

// askAs sends a text as somebody.
func askAs(ctx context.Context, q *Queue, id string, who asker, text string) error {
	l := q.line(lane, modelID)
	defer func() { l.release(time.Now()) }()
	if e := l.refuse(who, q.opt.MaxWait, time.Now()); e != nil {
		return e
	}
	r := newRequest(id, l, admit.Unbounded(ctx), work.Item{Operation: work.Detokenize, RequestID: id,
		ReplySubject: "_INBOX.gw." + id, Total: 1}, []msgp.Raw{msgp.AppendString(nil, text)},
		[]slice{{end: 1, bytes: 1000}})
	r.who = who
	r.began, r.limit = time.Now(), q.opt.Timeout
	r.late = r.began.Add(r.limit)
	return q.run(r)
}

// offered is what a tenant asks for and what became of it.
type offered struct {
	who     asker
	rate    int           // requests in a second
	from    time.Duration // answers before it do not count
	mu      sync.Mutex
	took    []time.Duration
	refused int
	first   time.Duration // when the first was refused; 0: none was
}

// p99 returns the wait for an answer that one in a hundred exceeds.
func (l *offered) p99() time.Duration {
	slices.Sort(l.took)
	return l.took[len(l.took)*99/100]
}

// offer sends the loads side by side, for a time, to workers of a pace.
func offer(t *testing.T, q *Queue, lasts time.Duration, loads ...*offered) {
	t.Helper()
	var all, loops sync.WaitGroup
	start := time.Now()
	for k, l := range loads {
		loops.Go(func() {
			for n := range l.rate * int(lasts/time.Second) {
				time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / time.Duration(l.rate))))
				all.Go(func() {
					begun := time.Now()
					err := askAs(t.Context(), q, fmt.Sprintf("r%d-%d", k, n), l.who, "text")
					l.mu.Lock()
					defer l.mu.Unlock()
					if err == nil {
						if begun.Sub(start) >= l.from {
							l.took = append(l.took, time.Since(begun))
						}
						return
					}
					l.refused++
					if l.first == 0 {
						l.first = time.Since(start)
					}
					if e := errs.As(err); e.Code != errs.QueueFull || e.RetryAfter < time.Second {
						t.Errorf("%v, retry after %v", err, e.RetryAfter)
					}
				})
			}
		})
	}
	loops.Wait()
	all.Wait()
}

// settled is when the window of a new line has found its size.
const settled = 5 * time.Second

// The workers do 40 requests in a second. Two tenants ask for 10 each; a third asks for 10, or for
// 100. That takes from the two no more than a moment, and refuses none of theirs; the third gets
// what they leave.
func TestATenantWaitsForNoOther(t *testing.T) {
	const pace, lasts = 100 * time.Millisecond, 60 * time.Second
	measure := func(third int) (a, b, c *offered) {
		a = &offered{who: asker{tenant: "a"}, rate: 10, from: settled}
		b = &offered{who: asker{tenant: "b"}, rate: 10, from: settled}
		c = &offered{who: asker{tenant: "c"}, rate: third, from: settled}
		bubble(t, 1, 4, func(o *Options) { o.Fair = true }, func(t *testing.T, q *Queue, w *world) {
			w.pace = pace
			offer(t, q, lasts, a, b, c)
		})
		return a, b, c
	}
	quietA, _, _ := measure(10)
	a, b, c := measure(100)
	t.Logf("p99 of a tenant at its usual rate: %v beside others at theirs, %v and %v beside one at ten times, "+
		"which has %d answers, %d refusals, p99 %v",
		quietA.p99(), a.p99(), b.p99(), len(c.took), c.refused, c.p99())
	// a worker of this world has one slice at once, so its credit window is one batch
	const extra = 2 * pace
	if a.refused+b.refused > 0 || a.p99() > quietA.p99()+extra || b.p99() > quietA.p99()+extra {
		t.Errorf("the others: %d and %d refused, p99 %v and %v, was %v",
			a.refused, b.refused, a.p99(), b.p99(), quietA.p99())
	}
	measured := int((lasts - settled) / time.Second)
	if most := 20 * measured; len(c.took) < most*9/10 || c.refused < 60*measured {
		t.Errorf("the third: %d answers of the %d that were left, %d refused", len(c.took), most, c.refused)
	}
}

// Without turns the same flood delays everybody: the test above sees what it is there for.
func TestWithoutTurnsEverybodyWaits(t *testing.T) {
	a, c := &offered{who: asker{tenant: "a"}, rate: 10}, &offered{who: asker{tenant: "c"}, rate: 100}
	bubble(t, 1, 4, nil, func(t *testing.T, q *Queue, w *world) {
		w.pace = 100 * time.Millisecond
		offer(t, q, 30*time.Second, a, c)
	})
	if a.p99() < time.Second && a.refused == 0 {
		t.Errorf("p99 %v", a.p99())
	}
}

// When there is too much work the lowest priority is refused first, and the highest last, also
// where one tenant has all three.
func TestTheLowestPriorityIsRefusedFirst(t *testing.T) {
	for _, tenants := range [][3]string{{"a", "b", "c"}, {"a", "a", "a"}} {
		var loads []*offered
		for i, p := range []tenant.Priority{tenant.Low, tenant.Normal, tenant.High} {
			loads = append(loads, &offered{who: asker{tenants[i], p}, rate: 30})
		}
		bubble(t, 1, 4, func(o *Options) { o.Fair = true }, func(t *testing.T, q *Queue, w *world) {
			w.pace = 100 * time.Millisecond // 40 of 90 in a second
			offer(t, q, 60*time.Second, loads...)
		})
		low, normal, high := loads[0], loads[1], loads[2]
		t.Logf("refused: low %d from %v, normal %d from %v, high %d from %v", low.refused, low.first,
			normal.refused, normal.first, high.refused, high.first)
		if low.refused == 0 || low.refused < normal.refused || normal.refused < high.refused ||
			normal.first != 0 && normal.first < low.first || high.first != 0 && high.first < normal.first {
			t.Errorf("%v: low %d from %v, normal %d from %v, high %d from %v", tenants,
				low.refused, low.first, normal.refused, normal.first, high.refused, high.first)
		}
	}
}

// Whatever is lost on the way, with turns nothing is lost either, and nothing of the room.
func TestTurnsLoseNothing(t *testing.T) {
	for _, seed := range seeds(10) {
		t.Run(fmt.Sprint("SIE_SEED=", seed), func(t *testing.T) {
			bubble(t, seed, 3, func(o *Options) { o.Fair, o.MaxWait = true, -1 },
				func(t *testing.T, q *Queue, w *world) {
					w.set(func() { w.loss = 0.1 })
					var all sync.WaitGroup
					for n := range 60 {
						time.Sleep(100 * time.Millisecond)
						all.Go(func() {
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							if n%7 == 0 { // a client that leaves
								time.AfterFunc(time.Second, cancel)
							}
							who := asker{fmt.Sprint("t", n%3), tenant.Priority(n % 3)}
							if err := askAs(ctx, q, fmt.Sprint("r", n), who, "x"); err != nil && n%7 != 0 {
								t.Errorf("request %d: %v", n, err)
							}
						})
						switch n {
						case 20:
							w.connect(false)
							w.lose()
						case 30:
							w.connect(true)
						case 40:
							w.set(func() { w.loss = 0 })
						}
					}
					all.Wait()
					l := q.peek(lane.WorkSubject(modelID))
					l.mu.Lock()
					defer l.mu.Unlock()
					if l.share.Out() != 0 || l.share.Waiting() != 0 {
						t.Errorf("left: %d out and %d waiting", l.share.Out(), l.share.Waiting())
					}
				})
		})
	}
}

// A request of many slices gets the room of those that are answered: it ends, in a gateway with
// turns as in one without.
func TestALargeRequestHasItsTurns(t *testing.T) {
	bubble(t, 1, 4, func(o *Options) { o.Fair = true }, func(t *testing.T, q *Queue, w *world) {
		w.pace = 10 * time.Millisecond
		texts := make([]string, 1000)
		for i := range texts {
			texts[i] = fmt.Sprint("text ", i)
		}
		got, err := ask(t.Context(), q, "large", texts, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range got {
			if text != "answer to "+texts[i] {
				t.Fatalf("item %d: %q", i, text)
			}
		}
	})
}

// Low priority is refused at half of the usual wait and high priority at twice of it; where there
// is no bound there is none for anybody.
func TestBoundsOfPriorities(t *testing.T) {
	for p, want := range map[tenant.Priority]time.Duration{
		tenant.Low: 2 * time.Second, tenant.Normal: 4 * time.Second, tenant.High: 8 * time.Second,
	} {
		if got := (asker{priority: p}).limit(4 * time.Second); got != want {
			t.Errorf("%v: %v, want %v", p, got, want)
		}
		if got := (asker{priority: p}).limit(-1); got >= 0 {
			t.Errorf("%v: a bound of %v where there is none", p, got)
		}
	}
}
