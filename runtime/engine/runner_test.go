package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
)

// batchOf packs n random sequences for a tiny program and returns the expected output.
func batchOf(rng *rand.Rand, p *Program, n int) (*Batch, []float32) {
	b := &Batch{Program: p, CuSeqlens: []int32{0}}
	for i := range n {
		for range 1 + rng.IntN(int(p.Caps().MaxLen)) {
			b.IDs = append(b.IDs, rng.Int32N(3))
		}
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		b.Items[0] = append(b.Items[0], OutItem{DType: F32, Offset: int64(8 * i)})
	}
	b.OutBytes[0] = int64(8 * n)
	return b, tinyWant(b.IDs, b.CuSeqlens)
}

// newTestRunner returns a runner whose device checks at the end of the test that nothing is open.
func newTestRunner(t *testing.T, threads int) (*Device, *Runner) {
	d := openTest(t, Options{Threads: threads})
	r := NewRunner(d)
	t.Cleanup(r.Close)
	return d, r
}

// Many callers, two programs of different size, batches of any size: each gets its own results.
func TestRunnerManyCallers(t *testing.T) {
	d, r := newTestRunner(t, 2)
	programs := []*Program{
		newTiny(t, d, Caps{MaxTokens: 64, MaxSeqs: 8, MaxLen: 8}).program,
		newTiny(t, d, Caps{MaxTokens: 4096, MaxSeqs: 300, MaxLen: 12}).program,
	}
	const callers, rounds = 8, 40
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			for range rounds {
				p := programs[rng.IntN(2)]
				b, want := batchOf(rng, p, 1+rng.IntN(int(p.Caps().MaxSeqs)))
				if err := r.Run(context.Background(), b); err != nil {
					t.Error(err)
					return
				}
				if err := near(floatsOf(b.Out[0]), want); err != nil {
					t.Error(err)
					return
				}
				if b.Duration <= 0 || b.Started.IsZero() {
					t.Errorf("started %v, took %v", b.Started, b.Duration)
				}
			}
		})
	}
	// A model loads and unloads meanwhile.
	for range 20 {
		w, err := d.NewWeight(WeightSpec{Kind: LinearWeight, Compute: ComputeF32, DType: F32, K: 64,
			Parts: []Part{{Data: make([]byte, 64*256*4), Rows: 256}}})
		if err != nil {
			t.Error(err)
			break
		}
		w.Close()
	}
	wg.Wait()
	if s := r.Stats(); s.Batches != callers*rounds || s.Failed != 0 || s.Tokens < s.Sequences ||
		s.Sequences < s.Batches || s.ArenaBytes <= 0 || s.SlotBytes <= 0 || s.Busy <= 0 {
		t.Errorf("%+v", s)
	}
}

// A refused batch answers its own caller with an error and affects no other batch.
func TestRunnerSurvivesBadBatches(t *testing.T) {
	d, r := newTestRunner(t, 1)
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	rng := rand.New(rand.NewPCG(3, 3))
	for range 5 { // more often than there are slots
		b, _ := batchOf(rng, m.program, 1)
		b.IDs[0] = 99
		if err := r.Run(context.Background(), b); !errors.Is(err, ErrInvalid) {
			t.Fatalf("an id beyond the table: %v", err)
		}
	}
	other := openTest(t, Options{Threads: 1})
	foreign, _ := batchOf(rng, newTiny(t, other, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 4}).program, 1)
	negative, _ := batchOf(rng, m.program, 1)
	negative.OutBytes[1] = -1
	third, _ := batchOf(rng, m.program, 1)
	third.OutBytes[2] = 8
	for name, b := range map[string]*Batch{
		"no program":                {},
		"program of another device": foreign,
		"negative size":             negative,
		"output 2 of 2":             third,
	} {
		if err := r.Run(context.Background(), b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, want := batchOf(rng, m.program, 1)
	for range 3 { // a batch may be reused, with its buffers
		if err := r.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if err := near(floatsOf(b.Out[0]), want); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Stats(); s.Failed != 5 || s.Batches != 8 {
		t.Errorf("%+v", s)
	}
}

// Each slot grows to the outputs that its batches ask for.
func TestRunnerGrowsOutputs(t *testing.T) {
	d, r := newTestRunner(t, 1)
	m := newTiny(t, d, Caps{MaxTokens: 40000, MaxSeqs: 5000, MaxLen: 8})
	rng := rand.New(rand.NewPCG(4, 4))
	for _, n := range []int{1, 1, 1, 4500, 4500, 4500, 2} {
		b, want := batchOf(rng, m.program, n)
		b.OutBytes[1] = int64(len(b.IDs)) * 8 // up to 288 KB, a slot begins with 64
		if err := r.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if err := near(floatsOf(b.Out[0]), want); err != nil {
			t.Fatal(err)
		}
		last := tinyToken(b.IDs[len(b.IDs)-1])
		if err := near(floatsOf(b.Out[1][len(b.Out[1])-8:]), last[:]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunnerContext(t *testing.T) {
	d, r := newTestRunner(t, 1)
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	b, _ := batchOf(rand.New(rand.NewPCG(1, 1)), m.program, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Run(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it began: %v", err)
	}
	// The device's lock is held, so the batch that the owner has taken cannot finish, and the next
	// ones are not taken.
	held, letGo := make(chan struct{}), make(chan struct{})
	go func() {
		d.mu.Lock()
		close(held)
		<-letGo
		d.mu.Unlock()
	}()
	<-held
	b.done = make(chan struct{}, 1)
	r.work <- b
	for range 2 {
		waiting, _ := batchOf(rand.New(rand.NewPCG(1, 1)), m.program, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		if err := r.Run(ctx, waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a batch that no slot took: %v", err)
		}
		cancel()
	}
	close(letGo)
	<-b.done
	if b.err != nil {
		t.Errorf("the batch that was taken: %v", b.err)
	}
}

// Close answers every caller, with a result or ErrClosed, and frees everything.
func TestRunnerClose(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	m := newTiny(t, d, Caps{MaxTokens: 64, MaxSeqs: 8, MaxLen: 8})
	r := NewRunner(d)
	var wg sync.WaitGroup
	for caller := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 2))
			for {
				b, want := batchOf(rng, m.program, 3)
				err := r.Run(context.Background(), b)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err == nil {
					err = near(floatsOf(b.Out[0]), want)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for r.Stats().Batches < 20 {
		time.Sleep(time.Millisecond)
	}
	r.Close()
	r.Close()
	wg.Wait()
	if d.open["arena"] != 0 || d.open["slot"] != 0 || r.Stats().ArenaBytes != 0 || r.Stats().SlotBytes != 0 {
		t.Errorf("left open: %v, stats %+v", d.open, r.Stats())
	}
	NewRunner(d).Close() // never used
}

// After the device is lost, every later batch gets the error without a call to the device.
func TestRunnerLostDevice(t *testing.T) {
	d, r := newTestRunner(t, 1)
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	r.lost.Store(&Error{Op: "run", Status: StatusDeviceLost, Msg: "planted"})
	b, _ := batchOf(rand.New(rand.NewPCG(1, 1)), m.program, 1)
	for range 3 {
		if err := r.Run(context.Background(), b); !errors.Is(err, ErrDeviceLost) {
			t.Errorf("%v", err)
		}
	}
}

// After the first batches a run allocates nothing.
func TestRunAllocatesNothing(t *testing.T) {
	if lockorder.Checked {
		t.Skip("locks that are checked allocate")
	}
	d, r := newTestRunner(t, 1)
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 4})
	b, _ := batchOf(rand.New(rand.NewPCG(1, 1)), m.program, 2)
	run := func() {
		if err := r.Run(context.Background(), b); err != nil {
			t.Error(err)
		}
	}
	for range 4 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n >= 1 {
		t.Errorf("a run allocates %v times", n)
	}
}

func BenchmarkRunner(b *testing.B) {
	d := openTest(b, Options{Threads: 1})
	m := newTiny(b, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	r := NewRunner(d)
	b.Cleanup(r.Close)
	batch, _ := batchOf(rand.New(rand.NewPCG(1, 1)), m.program, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// An arena shrinks to what the programs that are left need, also while batches run in it; it stays
// where they need all of it. Batches before, beside and behind get their results.
func TestRunnerShrinks(t *testing.T) {
	d, r := newTestRunner(t, 2)
	small := newTiny(t, d, Caps{MaxTokens: 64, MaxSeqs: 8, MaxLen: 8}).program
	large := newTiny(t, d, Caps{MaxTokens: 4096, MaxSeqs: 300, MaxLen: 12}).program
	run := func(p *Program, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b, want := batchOf(rng, p, 1+rng.IntN(int(p.Caps().MaxSeqs)))
		if err := r.Run(t.Context(), b); err != nil {
			t.Error(err)
		} else if err := near(floatsOf(b.Out[0]), want); err != nil {
			t.Error(err)
		}
	}
	run(large, 1)
	has := r.Stats().ArenaBytes
	r.Shrink(large.Footprint().With(small.Footprint()))
	if n := r.Stats().ArenaBytes; n != has || has == 0 {
		t.Errorf("%d bytes of %d are left, and all are needed", n, has)
	}
	r.Shrink(small.Footprint())
	if stays, _ := r.Growth(large.Footprint()); r.Stats().ArenaBytes != 0 || stays < has {
		t.Errorf("%d bytes are left; %d to grow", r.Stats().ArenaBytes, stays)
	}
	run(small, 2)
	if n := r.Stats().ArenaBytes; n == 0 || n >= has {
		t.Errorf("%d bytes behind the small program, %d behind the large one", n, has)
	}
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			for j := range uint64(20) {
				run([]*Program{small, large}[(i+j)%2], 100*i+j)
				if j%3 == 0 {
					r.Shrink(small.Footprint())
				}
			}
		})
	}
	wg.Wait()
	r.Close()
	r.Shrink(Footprint{}) // of a closed runner: nothing
}
