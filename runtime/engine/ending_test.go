package engine

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stateOf returns what the runtime says of each goroutine that is in a function.
func stateOf(function string) []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var states []string
	for _, g := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(g, function+"(") {
			states = append(states, regexp.MustCompile(`\[(.*)\]:`).FindStringSubmatch(g)[1])
		}
	}
	return states
}

// A goroutine that waits for a batch is parked: it is in no system call, which Go's monitor would
// look after.
func TestEndingIsWaitedForParked(t *testing.T) {
	e := newEnding()
	if e.fd() <= 0 {
		t.Fatalf("an ending without a file: %d", e.fd())
	}
	const batches = 3
	told := make(chan int)
	go func() {
		for i := range batches {
			e.wait()
			told <- i
		}
	}()
	for i := range batches {
		began := time.Now()
		for {
			states := stateOf("engine.(*ending).wait")
			if len(states) == 1 && strings.HasPrefix(states[0], "IO wait") {
				break
			}
			// The read that finds nothing, before the goroutine is parked, is a system call too:
			// only one that lasts blocks its thread.
			if time.Since(began) > time.Minute {
				t.Fatalf("the wait blocks a thread: %v", states)
			}
			runtime.Gosched()
		}
		select {
		case i := <-told:
			t.Fatalf("batch %d was never done", i)
		default:
		}
		if _, err := unix.Write(e.fd(), binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
			t.Fatal(err)
		}
		if got := <-told; got != i {
			t.Fatalf("batch %d instead of %d", got, i)
		}
	}
	e.close()
}

// A file that Go does not poll is waited for all the same.
func TestEndingThatIsNotPolled(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	e := &ending{eventfd: os.NewFile(uintptr(fd), "blocking when it was made"), number: fd}
	defer e.close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() {
		e.wait()
		close(waited)
	}()
	for len(stateOf("unix.Poll")) == 0 {
		select {
		case <-waited:
			t.Fatal("the batch was never done")
		default:
			runtime.Gosched()
		}
	}
	if _, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		t.Fatal(err)
	}
	<-waited
}

// Slots of a CPU have one, give its file back, and do without where there is none to be had.
func TestSlotsEndings(t *testing.T) {
	d := openTest(t, Options{Threads: 2})
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	caps := SlotCaps{MaxTokens: 8, MaxSeqs: 2, OutputBytes: []int64{64, 64}}
	a, err := d.NewArena(m.program.Workspace())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b := rowsBatch([]int32{1}, nil, []int32{0, 1}, []OutItem{{DType: F32}})
	use := func(want bool) {
		t.Helper()
		s, err := d.NewSlot(caps)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if has := s.done.fd() > 0; has != want {
			t.Fatalf("a slot with an eventfd: %v, want %v", has, want)
		}
		for range 3 {
			if err := s.Load(m.program, b); err != nil {
				t.Fatal(err)
			}
			if err := m.program.Submit(a, s); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(); err != nil {
				t.Fatal(err)
			}
			if s.done != nil {
				var count [8]byte
				if n, err := unix.Read(s.done.fd(), count[:]); err != unix.EAGAIN {
					t.Errorf("a batch told twice: %d, %v", n, err)
				}
			}
			if err := near(floatsOf(s.UnsafeOutput(0)[:8]), tinyWant([]int32{1}, []int32{0, 1})); err != nil {
				t.Fatal(err)
			}
		}
	}
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	use(true)
	before := files()
	for range 20 {
		use(true)
	}
	if _, err := d.NewSlot(SlotCaps{MaxTokens: 8, MaxSeqs: 2, OutputBytes: []int64{-1}}); err == nil {
		t.Fatal("a slot of less than nothing")
	}
	if after := files(); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}

	none := func(uint, int) (int, error) { return -1, unix.EMFILE }
	newEventfd = none
	use(false)
	// File 0 stands for none in sie.h.
	newEventfd = func(n uint, flags int) (int, error) {
		fd, err := unix.Eventfd(n, flags)
		if err != nil {
			return fd, err
		}
		defer unix.Close(fd)
		if err := unix.Dup2(fd, 0); err != nil {
			return -1, err
		}
		return 0, nil
	}
	input, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewSlot(caps)
	if err != nil {
		t.Fatal(err)
	}
	if s.done.fd() != 0 {
		t.Errorf("an eventfd %d", s.done.fd())
	}
	s.done.wait() // nothing to wait for
	s.Close()
	newEventfd = unix.Eventfd
	if err := unix.Dup2(input, 0); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(input)
}

// No goroutine of a CPU's runner has a thread of its own, which each batch would have to wake.
func TestRunnerOfACPUHasNoThreads(t *testing.T) {
	d, r := newTestRunner(t, 2)
	m := newTiny(t, d, Caps{MaxTokens: 64, MaxSeqs: 8, MaxLen: 8})
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 2))
			for range 20 {
				b, want := batchOf(rng, m.program, 1+rng.IntN(8))
				if err := r.Run(context.Background(), b); err != nil {
					t.Error(err)
					return
				}
				if err := near(floatsOf(b.Out[0]), want); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for function, want := range map[string]int{
		"engine.(*Runner).submitLoop": 1, "engine.(*Runner).waitLoop": slotsInFlight,
	} {
		states := stateOf(function)
		if len(states) != want {
			t.Errorf("%s: %d goroutines, want %d", function, len(states), want)
		}
		for _, state := range states {
			if strings.Contains(state, "locked to thread") {
				t.Errorf("%s: %s", function, state)
			}
		}
	}
}
