package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
)

// lived runs f over workers that f may kill and stop.
func lived(t *testing.T, seed uint64, workers int, f func(t *testing.T, q *Queue, b *boxes)) {
	bubble(t, seed, 0, func(o *Options) { o.MaxWait = -1 }, func(t *testing.T, q *Queue, w *world) {
		b := newBoxes(w, workers, seed)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.run(ctx)
		}()
		f(t, q, b)
		time.Sleep(30 * time.Second) // receipts of what nobody waits for
		cancel()
		<-ended
	})
}

// One worker of three dies, or stops, in any way and at any moment: every request that is open then
// or begins later is answered, and none of them much later than the time in which its silence is
// known. The names give the longest wait that each death may cost.
func TestADeathCostsSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		most time.Duration
		hurt func(ctx context.Context, b *boxes, i int)
	}{
		"the server is killed": {6 * time.Second, func(ctx context.Context, b *boxes, i int) {
			b.killServer(ctx, i)
		}},
		"the server is stopped": {8 * time.Second, func(_ context.Context, b *boxes, i int) {
			b.stopServer(i, 40*time.Second)
		}},
		"the sidecar is killed for good": {8 * time.Second, func(_ context.Context, b *boxes, i int) {
			b.killSidecar(i, time.Hour)
		}},
		"the sidecar is killed and starts again": {4 * time.Second, func(_ context.Context, b *boxes, i int) {
			b.killSidecar(i, 500*time.Millisecond)
		}},
		"the sidecar is stopped": {10 * time.Second, func(_ context.Context, b *boxes, i int) {
			b.stopSidecar(i, 40*time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			longest := time.Duration(0)
			for _, seed := range seeds(8) {
				lived(t, seed, 3, func(t *testing.T, q *Queue, b *boxes) {
					rnd := rand.New(rand.NewPCG(seed, 4))
					var all sync.WaitGroup
					var mu sync.Mutex
					at := 200 + rnd.IntN(50)
					for n := range 800 { // 30 a second
						if n == at {
							c.hurt(t.Context(), b, rnd.IntN(3))
						}
						all.Go(func() {
							begun := time.Now()
							text := fmt.Sprint("text ", n)
							got, err := ask(t.Context(), q, fmt.Sprint("r", n), []string{text}, 1)
							if err != nil || got[0] != "answer to "+text {
								t.Errorf("seed %d, request %d: %q %v", seed, n, got, err)
							}
							mu.Lock()
							defer mu.Unlock()
							longest = max(longest, time.Since(begun))
						})
						time.Sleep(time.Duration(20+rnd.IntN(26)) * time.Millisecond)
					}
					all.Wait()
				})
			}
			t.Logf("the longest wait was %v", longest)
			if longest > c.most {
				t.Errorf("a request waited for %v, more than %v", longest, c.most)
			}
		})
	}
}

// Texts that end their servers, innocent ones, and servers that are killed from outside, one after
// another, all at once and three times in a row: a poison ends at most three servers and is a dead
// letter. An innocent text is one only when two servers ended while it was alone in them; it is
// answered, or its caller is told to try again after three servers. That a server is killed while
// an innocent text is alone in it is rare, about once in two runs: the runs go on until it was
// seen.
func TestPoisonAmongInnocents(t *testing.T) {
	seen := map[string]int{}
	rare := []string{"answered", "poison is buried", "died alone", "killed from outside"}
	missing := func(what string) bool { return seen[what] == 0 }
	for i, seed := range seeds(120) {
		if i >= 12 && !slices.ContainsFunc(rare, missing) {
			break
		}
		lived(t, seed, 1+int(seed%3), func(t *testing.T, q *Queue, b *boxes) {
			poisonAmongInnocents(t, q, b, seed, seen)
		})
	}
	t.Log(seen)
	for _, what := range rare {
		if missing(what) {
			t.Errorf("%s never happened: %v", what, seen)
		}
	}
}

func poisonAmongInnocents(t *testing.T, q *Queue, b *boxes, seed uint64, seen map[string]int) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	var all sync.WaitGroup
	var mu sync.Mutex
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen[what]++
	}
	for n := range 150 {
		at := time.Duration(rnd.IntN(60_000)) * time.Millisecond
		poison := rnd.IntN(25) == 0
		all.Go(func() {
			time.Sleep(at)
			id, text := fmt.Sprint("r", n), fmt.Sprint("text ", n)
			if poison {
				text = "!poison " + text
			}
			got, err := ask(t.Context(), q, id, []string{text}, 1)
			var e *errs.Error
			errors.As(err, &e)
			alone, byText := b.aloneDeaths(id+".0"), b.byText(id+".0")
			buried := err != nil && strings.Contains(e.Message, "dead letter")
			if alone > 0 && !poison {
				count("died alone")
			}
			switch {
			case poison && buried && byText <= maxDeaths && alone >= aloneDeaths:
				count("poison is buried")
			case poison:
				t.Errorf("seed %d: poison %s ended %d servers, %d alone: %v", seed, id, byText, alone, err)
			case buried && alone >= aloneDeaths:
				count("innocent, killed alone twice")
			case err != nil:
				t.Errorf("seed %d: %s after %d deaths alone: %v", seed, id, alone, err)
			case got[0] != "answer to "+text:
				t.Errorf("seed %d: %s: %q", seed, id, got)
			default:
				count("answered")
			}
		})
	}
	for range 10 {
		time.Sleep(time.Duration(rnd.IntN(7000)) * time.Millisecond)
		count("killed from outside")
		switch i := rnd.IntN(len(b.boxes)); rnd.IntN(3) {
		case 0:
			b.killServer(t.Context(), i)
		case 1:
			for range 3 {
				b.killServer(t.Context(), i)
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			}
		case 2:
			for i := range b.boxes {
				b.killServer(t.Context(), i)
			}
		}
	}
	all.Wait()
}
