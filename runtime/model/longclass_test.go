package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/engine"
)

// Requests hold and release programs for long texts in a random order, while a monitor looks every
// second and memory is sometimes short. A held program is always counted, room is asked for one
// program at a time and only for one that is not counted, nothing is counted after a minute without
// requests, and nobody waits for an answer that never comes.
func TestLongClassCountsWhatIsHeld(t *testing.T) {
	total := struct{ asked, refused, given int }{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			var c longClass
			variants := []*Variant{{}, {}, {}}
			var mu sync.Mutex // of the model that follows
			held := map[*Variant]int{}
			asking, asked, refused, given := 0, 0, 0, 0
			noRoom := errors.New("no room")
			stop := make(chan struct{})
			var monitor, requests sync.WaitGroup
			counts := func(v *Variant) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				_, ok := c.counted[v]
				return ok
			}
			monitor.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
					}
					mu.Lock()
					n := asking
					for _, uses := range held {
						n += uses
					}
					if c.expire(time.Minute) {
						if given++; n > 0 {
							t.Errorf("seed %d: given up while %d requests hold or ask", seed, n)
						}
					}
					mu.Unlock()
				}
			})
			for i := range uint64(8) {
				rng := rand.New(rand.NewPCG(seed, i))
				requests.Go(func() {
					for range 30 {
						time.Sleep(time.Duration(rng.IntN(90_000)) * time.Millisecond)
						v, short := variants[rng.IntN(len(variants))], rng.IntN(4) == 0
						limit := time.Duration(1+rng.IntN(9000)) * time.Millisecond
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						mine := false
						err := c.hold(ctx, v, engine.Footprint{}, func() error {
							mu.Lock()
							if asking++; asking > 1 || held[v] > 0 {
								t.Errorf("seed %d: %d ask, %d hold what is asked for", seed, asking, held[v])
							}
							asked++
							mu.Unlock()
							time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							if asking--; short {
								refused++
								return noRoom
							}
							mine, held[v] = true, held[v]+1 // before others may learn of it
							return nil
						})
						switch {
						case errors.Is(err, context.DeadlineExceeded), errors.Is(err, noRoom):
							cancel()
							continue
						case err != nil:
							t.Errorf("seed %d: %v", seed, err)
						}
						if mu.Lock(); !mine {
							held[v]++
						}
						mu.Unlock()
						if !counts(v) {
							t.Errorf("seed %d: held and not counted", seed)
						}
						time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
						if !counts(v) {
							t.Errorf("seed %d: held and no longer counted", seed)
						}
						mu.Lock()
						held[v]--
						mu.Unlock()
						c.release()
						cancel()
					}
				})
			}
			requests.Wait()
			time.Sleep(62 * time.Second)
			close(stop)
			monitor.Wait()
			if c.any() || c.uses != 0 || c.answer != nil {
				t.Errorf("seed %d: %d uses are left, counted: %v", seed, c.uses, c.any())
			}
			total.asked += asked
			total.refused += refused
			total.given += given
		})
	}
	if total.asked < 100 || total.refused < 40 || total.given < 20 {
		t.Errorf("too weak: %+v", total)
	}
}

// A request with short and long texts gets the vectors that a host without classes gives, in order.
// No batch has texts of both classes. Once no request has had a long text for a while, the memory
// of the second program is given up, and taken again with the next.
func TestLongTextsHaveABatchOfTheirOwn(t *testing.T) {
	const short = 8
	texts := words(40)
	want := start(t, nil, []string{mean}).vectors(mean, texts...)
	var batches sync.Map // length of the longest text → batches
	r := start(t, func(o *Options) {
		o.ShortTokens, o.LongIdle = short, time.Nanosecond
		o.Intercept = func(b *engine.Batch) error {
			long, n := b.Program.Caps().MinLen > 0, len(b.CuSeqlens)-1
			for i := range n {
				if l := int(b.CuSeqlens[i+1] - b.CuSeqlens[i]); (l > short) != long {
					t.Errorf("a text of %d tokens in a batch of the other class", l)
				}
			}
			batches.Store(long, true)
			return nil
		}
	}, []string{mean})
	if got := r.vectors(mean, texts[0]); !slices.Equal(got[0], want[0]) {
		t.Error("a short text differs")
	}
	if _, ok := batches.Load(true); ok {
		t.Fatal("a program for long texts runs for a short one")
	}
	l := r.copy(mean)
	small := whole(l.largest())
	if n := len(l.recorded()); n != 1 {
		t.Errorf("%d programs before the first long text", n)
	}
	for round := range 2 {
		for i, row := range r.vectors(mean, texts...) {
			if !slices.Equal(row, want[i]) {
				t.Errorf("round %d: text %d differs", round, i)
			}
		}
		if _, ok := batches.Load(true); !ok {
			t.Fatal("no long text")
		}
		if !l.long.any() || l.long.uses != 0 {
			t.Errorf("%d uses are left, counted: %v", l.long.uses, l.long.any())
		}
		r.giveUpLong()
		if l.long.any() || whole(l.largest()) != small {
			t.Errorf("%d bytes are counted; %d before", whole(l.largest()), small)
		}
	}
}

// Where the workspace of long texts can never fit, a request with one is refused with its bound and
// the bytes; the same request without it is answered. Where memory is only taken for now, it is
// told to come back.
func TestLongTextsWithoutRoom(t *testing.T) {
	const short = 8
	longest := strings.Repeat("cat ", 12)
	r := start(t, func(o *Options) { o.ShortTokens, o.MemoryThreshold = short, 1<<20 }, []string{mean})
	r.encode(&Request{Model: mean, Texts: []string{"cat"}})
	l := r.copy(mean)
	v, err := l.Variant(l.weights.Own())
	if err != nil {
		t.Fatal(err)
	}
	used, total := int64(0), l.Bytes()+whole(l.largest())
	r.memory = func() memory { return memory{used: used, total: total} }
	used = total
	for _, c := range []struct {
		name        string
		used, total int64
		code        errs.Code
		status      int
		says        []string
	}{
		{"never", l.Bytes(), l.Bytes(), errs.InvalidInput, 400,
			[]string{"more than 8 tokens", "bytes of memory on this machine", "max_seq_length"}},
		{"now", 1 << 50, 1 << 50, errs.ResourceExhausted, 503, nil},
	} {
		used, total = c.used, c.total
		// as if nothing were allocated yet
		r.devices[0].runner.Shrink(engine.Footprint{})
		e := r.refused(t.Context(), &Request{Model: mean, Texts: []string{"cat", longest}}, c.code, c.status)
		for _, part := range c.says {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%s: %q does not say %q", c.name, e.Message, part)
			}
		}
		if l.long.any() || l.long.uses != 0 {
			t.Errorf("%s: something is held", c.name)
		}
		r.encode(&Request{Model: mean, Texts: []string{"cat"}})
	}
	used, total = 0, 1<<50
	r.encode(&Request{Model: mean, Texts: []string{"cat", longest}})
	if _, release, err := l.Long(t.Context(), v); err != nil {
		t.Error(err)
	} else {
		release()
	}
}

// A budget of weights that the loaded models keep has room for long texts: they take no weights.
func TestLongTextsTakeNoBudget(t *testing.T) {
	bytes, estimate, _ := sizes(t, mean)
	r := start(t, func(o *Options) {
		o.ShortTokens, o.MemoryBudget = 8, max(bytes, estimate)
	}, []string{mean})
	r.encode(&Request{Model: mean, Texts: []string{"cat", strings.Repeat("cat ", 12)}})
}

// Long texts that need the memory of a model in use are told to come back, not that something
// broke.
func TestLongTextsBesideAModelInUse(t *testing.T) {
	r := start(t, func(o *Options) {
		held(3)(o)
		o.ShortTokens, o.EvictWait, o.MemoryThreshold = 8, 50*time.Millisecond, 1<<20
	}, []string{mean, cls})
	if err := r.Preload(t.Context(), mean); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { // two of three items: they stay in the queue and hold the model
		_, err := r.Encode(t.Context(), &Request{Model: cls, Texts: []string{"cat", "dog"}})
		done <- err
	}()
	r.queued(cls, 2)
	full := true
	r.memory = func() memory {
		if full {
			return memory{used: 1 << 50, total: 1 << 50}
		}
		return memory{total: 1 << 50}
	}
	e := r.refused(t.Context(), &Request{Model: mean, Texts: []string{strings.Repeat("cat ", 12)}},
		errs.ResourceExhausted, 503)
	if e.RetryAfter < time.Second {
		t.Errorf("retry after %s", e.RetryAfter)
	}
	full = false
	if l := r.copy(mean); l.long.any() || l.long.uses != 0 {
		t.Error("something is held")
	}
	if _, err := r.Encode(t.Context(), &Request{Model: cls, Texts: []string{"cat"}}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Scores of long queries and texts are those of a host without classes, and nothing stays held.
func TestScoresOfLongTexts(t *testing.T) {
	dir := withTokenizer(t, "colbert-linear", "st-mean", nil)
	late := loadtime(t, "late", dir, "colbert", "tasks: {encode: {multivector: {dim: 24}}, score: {}}",
		"{query_max_length: 12, skip_special_tokens: false}")
	q := &Request{Model: "late", Query: "the cat", Texts: words(20)}
	want, err := start(t, nil, nil, late).Encode(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.ShortTokens = 8 }, nil, late)
	got, err := r.Encode(t.Context(), q)
	if err != nil || !slices.Equal(got.Scores, want.Scores) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if l := r.copy("late"); l.long.uses != 0 || !l.long.any() {
		t.Errorf("%d uses are left, counted: %v", l.long.uses, l.long.any())
	}
}

// A program with adapters counts again after its memory was given up.
func TestLongTextsWithAdaptersCountAgain(t *testing.T) {
	r, _ := withAdapters(t, func(o *Options) { o.ShortTokens, o.LongIdle = 8, time.Nanosecond })
	ask := four()
	ask.Texts = []string{strings.Repeat("cat ", 12)}
	counted := func() int64 {
		_, err := untilLoaded(t, func() (*Result, error) { return r.Encode(t.Context(), ask) })
		if err != nil {
			t.Fatal(err)
		}
		l := r.copy("lo")
		if l.long.uses != 0 {
			t.Errorf("%d uses are left", l.long.uses)
		}
		defer r.giveUpLong()
		return whole(l.long.footprint())
	}
	if first, second := counted(), counted(); first != second {
		t.Errorf("%d bytes count at first, then %d", first, second)
	}
}

// A panic while room is asked, which ends its request and not the server, holds nothing: the next
// request asks again, and the memory is given up in time.
func TestPanicWhileRoomIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c longClass
		v := new(Variant)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = c.hold(t.Context(), v, engine.Footprint{}, func() error { panic("planted") })
		}()
		if c.any() {
			t.Error("what had no room counts")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := false
		err := c.hold(ctx, v, engine.Footprint{}, func() error { asked = true; return nil })
		if err != nil || !asked {
			t.Errorf("the next: %v, asked %v", err, asked)
		}
		c.release()
		time.Sleep(time.Hour)
		if !c.expire(time.Minute) {
			t.Error("it counts forever")
		}
	})
}
