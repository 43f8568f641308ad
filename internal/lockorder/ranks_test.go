package lockorder

import (
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

var ranks = []Rank{Swap{}, Uploader{}, Registry{}, Adapters{}, Model{}, Usage{}, Folds{}, Scheduler{},
	Group{}, Reservation{}, InProcess{}, Engine{}}

// ARCHITECTURE.md names every rank, in order.
func TestTheOrderIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "Lock order")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no lock order")
	}
	for i, p := range ranks {
		n, name := p.rank()
		if n != i+1 {
			t.Errorf("%s has rank %d, want %d", name, n, i+1)
		}
		if _, rest, ok = strings.Cut(rest, "`"+name+"`"); !ok {
			t.Fatalf("ARCHITECTURE.md does not name %s after those before it", name)
		}
	}
}

// Without the tag a Mutex is only a sync.Mutex.
func TestPlainMutexesCostNothing(t *testing.T) {
	if !Checked && unsafe.Sizeof(Mutex[Scheduler]{}) != unsafe.Sizeof(sync.Mutex{}) {
		t.Errorf("a Mutex has %d bytes", unsafe.Sizeof(Mutex[Scheduler]{}))
	}
	var m Mutex[Scheduler]
	//lint:ignore SA2001 what it costs to hold nothing is measured
	if n := testing.AllocsPerRun(100, func() { m.Lock(); m.Unlock(); AssertNoneHeld("nothing") }); !Checked &&
		n != 0 {
		t.Errorf("%v allocations", n)
	}
}
