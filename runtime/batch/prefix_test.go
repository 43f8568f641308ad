package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func behindPrefix(p *Prefix, adapter Adapter, ids ...int32) *Item {
	return &Item{Inputs: Inputs{IDs: ids}, Prefix: p, Adapter: adapter, Specs: []Spec{{Bytes: 8}}}
}

// Items share a prefix where that spares the device enough, with one adapter; the others have it as
// their own tokens.
func TestPackPrefixes(t *testing.T) {
	red, blue := "red", "blue"
	long, short := &Prefix{IDs: make([]int32, minSpared)}, &Prefix{IDs: []int32{1, 2}}
	for i := range long.IDs {
		long.IDs[i] = int32(100 + i)
	}
	items := []*Item{
		behindPrefix(short, nil, 3), behindPrefix(long, &red, 4, 5), {Inputs: Inputs{IDs: []int32{6}},
			Specs: []Spec{{Bytes: 8}}},
		behindPrefix(long, &blue, 7), behindPrefix(long, &red, 8), behindPrefix(short, nil, 9),
		behindPrefix(long, &blue, 10, 11), behindPrefix(long, nil, 12),
	}
	p := packAll(items)
	n := int32(minSpared)
	for _, c := range []struct {
		what       string
		have, want any
	}{
		{"ids", p.IDs,
			slices.Concat([]int32{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 9, 10, 11}, long.IDs, []int32{12})},
		{"cu_seqlens", p.CuSeqlens, []int32{0, 3, 5, 6, 7, 8, 11, 13, 14 + n}},
		{"adapters", p.Adapters, []Adapter{nil, &red, nil, &blue, &red, nil, &blue, nil}},
		{"ids of prefixes", p.Prefixes.IDs, slices.Concat(long.IDs, long.IDs)},
		{"cu_seqlens of prefixes", p.Prefixes.CuSeqlens, []int32{0, n, 2 * n}},
		{"adapters of prefixes", p.Prefixes.Adapters, []Adapter{&red, &blue}},
		{"first", p.Prefixes.First, []int32{0, 0, 0, n, 0, 0, n, 0}},
		{"tokens", p.Prefixes.Tokens, []int32{0, n, 0, n, n, 0, n, 0}},
	} {
		if !reflect.DeepEqual(c.have, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.have, c.want)
		}
	}
	if len(items[0].IDs) != 1 || items[0].Prefix == nil {
		t.Error("packing changed an item")
	}
	for _, alone := range [][]*Item{items[:1], items[1:4], items[2:3]} {
		if p := packAll(alone); p.Prefixes != nil {
			t.Errorf("a prefix that spares nothing is shared: %+v", p.Prefixes)
		}
	}
	if p := packAll([]*Item{items[4], items[1]}); p.Prefixes == nil || p.Prefixes.Tokens[0] != n {
		t.Error("two items with a long prefix do not share it")
	}
	if p := packAll([]*Item{behindPrefix(long, nil, 1), behindPrefix(long, nil, 2)}); p.Adapters != nil ||
		p.Prefixes.Adapters != nil {
		t.Errorf("adapters of a batch without any: %v, %v", p.Adapters, p.Prefixes.Adapters)
	}
}

// prefixRunner answers each sequence with the sum of its ids, the prefix's included, and the number
// of its tokens. It notes the tokens that were computed.
type prefixRunner struct {
	t          *testing.T
	mu         sync.Mutex
	tokens     []int
	rows, most int // bounds of the program
	fail       func(items int) error
}

func (r *prefixRunner) RunPacked(_ context.Context, _ int, p *Packed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := p.Outputs[0]
	if r.fail != nil {
		if err := r.fail(len(place.Specs)); err != nil {
			return Result{}, err
		}
	}
	out := make([]byte, place.Bytes)
	computed := len(p.IDs)
	if p.Prefixes != nil {
		computed += len(p.Prefixes.IDs)
		if len(p.Prefixes.IDs) > r.rows || len(p.Prefixes.CuSeqlens)-1 > MaxPrefixes {
			r.t.Errorf("%d prefixes of %d tokens", len(p.Prefixes.CuSeqlens)-1, len(p.Prefixes.IDs))
		}
	}
	if computed > r.most && len(place.Specs) > 1 {
		r.t.Errorf("a batch of %d items has %d tokens, %d are possible", len(place.Specs), computed, r.most)
	}
	r.tokens = append(r.tokens, computed)
	for i := range place.Specs {
		ids := p.IDs[p.CuSeqlens[i]:p.CuSeqlens[i+1]]
		if p.Prefixes != nil {
			first := p.Prefixes.First[i]
			ids = slices.Concat(p.Prefixes.IDs[first:first+p.Prefixes.Tokens[i]], ids)
		}
		sum := int32(0)
		for _, id := range ids {
			sum += id
		}
		binary.LittleEndian.PutUint32(out[place.Offsets[i]:], uint32(sum))
		binary.LittleEndian.PutUint32(out[place.Offsets[i]+4:], uint32(len(ids)))
	}
	return Result{out}, nil
}

// Random items with and without prefixes: every result is that of the whole text, and no batch
// exceeds its bounds, where a prefix that is shared counts once.
func TestBatchesOfPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := &prefixRunner{t: t, rows: 300, most: 1000}
			q := NewQueue(NewSingleScheduler(1), r, Options{MaxCost: r.most, MaxPrefixTokens: r.rows,
				MaxRequests: 40})
			var prefixes []*Prefix
			for range 1 + rng.IntN(80) {
				prefixes = append(prefixes, &Prefix{IDs: randomTokens(rng, 1+rng.IntN(100))})
			}
			items, want := make([]Item, 150), make([][2]uint32, 150)
			used := prefixes[:1+rng.IntN(len(prefixes))]
			for i := range items {
				items[i] = Item{
					Inputs: Inputs{IDs: randomTokens(rng, 1+rng.IntN(30))}, Specs: []Spec{{Bytes: 8}},
				}
				all := items[i].IDs
				if rng.IntN(8) > 0 {
					items[i].Prefix = used[rng.IntN(len(used))]
					all = slices.Concat(items[i].Prefix.IDs, all)
				}
				for _, id := range all {
					want[i][0] += uint32(id)
				}
				want[i][1] = uint32(len(all))
			}
			results, err := submit(t, q, t.Context(), items...).Wait()
			if err != nil {
				t.Fatal(err)
			}
			for i := range results {
				out := results[i][0]
				got := [2]uint32{binary.LittleEndian.Uint32(out), binary.LittleEndian.Uint32(out[4:])}
				if got != want[i] {
					t.Errorf("item %d: %v, want %v", i, got, want[i])
				}
			}
			q.Close(ErrClosed)
		})
	}
}

func randomTokens(rng *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(1000)
	}
	return ids
}

// A batch of a request with a query of 60 tokens and 100 texts of 128 has 60 tokens of the query,
// also in what it reports; the work of a text is that behind the query.
func TestPrefixCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &prefixRunner{t: t, rows: 1024, most: 16384}
		var reported []int
		q := NewQueue(NewSingleScheduler(1), r, Options{MaxPrefixTokens: 1024, MaxRequests: 100,
			IdleCoalesce: time.Second, BatchDone: func(_, tokens int, _ time.Duration) {
				reported = append(reported, tokens)
			}})
		p := &Prefix{IDs: make([]int32, 60)}
		items := make([]Item, 100)
		for i := range items {
			items[i] = *behindPrefix(p, nil, make([]int32, 128)...)
		}
		if _, err := submit(t, q, t.Context(), items...).Wait(); err != nil {
			t.Fatal(err)
		}
		q.Close(ErrClosed)
		if want := []int{100*128 + 60}; !slices.Equal(r.tokens, want) || !slices.Equal(reported, want) {
			t.Errorf("batches of %v tokens, reported as %v; want %v", r.tokens, reported, want)
		}
	})
	w := Work{PerToken: 2, PerPair: 3}
	if got, want := w.behind(10, 5), w.of(15)-w.of(10); got != want || w.behind(0, 5) != w.of(5) {
		t.Errorf("the work of 5 tokens behind 10 is %v, want %v", got, want)
	}
}

// A batch that the device has too little memory for runs in parts, and each has no more tokens than
// a batch may, though fewer of its items share a prefix.
func TestPartsOfABatchShareItsPrefixes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := errors.New("too little memory")
		r := &prefixRunner{t: t, rows: 300, most: 1000, fail: func(items int) error {
			if items == 4 {
				return short
			}
			return nil
		}}
		q := NewQueue(NewSingleScheduler(1), r, Options{MaxCost: r.most, MaxPrefixTokens: r.rows,
			MaxRequests: 40, IdleCoalesce: time.Second,
			NoMemory: func(err error) bool { return err == short }})
		p, other := &Prefix{IDs: make([]int32, 100)}, &Prefix{IDs: make([]int32, 60)}
		items := []Item{*behindPrefix(other, nil, 5), *behindPrefix(p, nil, 1, 2),
			*behindPrefix(p, nil, make([]int32, 400)...), *behindPrefix(p, nil, make([]int32, 430)...)}
		results, err := submit(t, q, t.Context(), items...).Wait()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []uint32{61, 102, 500, 530} {
			if got := binary.LittleEndian.Uint32(results[i][0][4:]); got != want {
				t.Errorf("item %d has %d tokens, want %d", i, got, want)
			}
		}
		q.Close(ErrClosed)
		if want := []int{163, 930}; !slices.Equal(r.tokens, want) {
			t.Errorf("parts of %v tokens, want %v", r.tokens, want)
		}
	})
}

// The device computes a prefix for each of the first items, and once when there are enough.
func TestPrefixRuns(t *testing.T) {
	p := &Prefix{IDs: make([]int32, 50)}
	var set prefixSet
	for i, want := range []int{1, 1, 1, -2, 0, 0} { // 3·50 tokens are spared from the fourth item on
		it := behindPrefix(p, nil, 1)
		if runs, fits := set.with(it, 50); runs != want || !fits {
			t.Errorf("item %d: the prefix runs %d times more (%v), want %d", i, runs, fits, want)
		}
		set.add(it)
	}
}

// A prefix that no items share takes no rows of the state: 30 requests of two texts behind 100
// tokens are one batch.
func TestPrefixesOfFewItemsFillNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &prefixRunner{t: t, rows: 300, most: 16384}
		q := NewQueue(NewSingleScheduler(1), r, Options{MaxPrefixTokens: r.rows, MaxRequests: 100,
			IdleCoalesce: time.Second})
		var items []Item
		for range 30 {
			p := &Prefix{IDs: make([]int32, 100)}
			items = append(items, *behindPrefix(p, nil, 1), *behindPrefix(p, nil, 2))
		}
		if _, err := submit(t, q, t.Context(), items...).Wait(); err != nil {
			t.Fatal(err)
		}
		q.Close(ErrClosed)
		if want := []int{60 * 101}; !slices.Equal(r.tokens, want) {
			t.Errorf("batches of %v tokens, want %v", r.tokens, want)
		}
	})
}
