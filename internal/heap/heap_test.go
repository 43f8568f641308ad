package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// percentages are what a keeper has set.
type percentages struct {
	mu  sync.Mutex
	all []int
}

// rig returns a keeper of a process whose percentages are of base bytes, and what it sets.
func rig(base *int64) (*keeper, *percentages) {
	set := &percentages{}
	k := &keeper{percent: usual, base: func() int64 { return *base }}
	k.set = func(p int) {
		set.mu.Lock()
		defer set.mu.Unlock()
		set.all = append(set.all, p)
	}
	k.idle = time.AfterFunc(idleGap, k.rest)
	k.idle.Stop()
	return k, set
}

// collect makes n collections, a gap apart.
func collect(k *keeper, n int, gap time.Duration) {
	for range n {
		time.Sleep(gap)
		k.collected(time.Now())
	}
}

func want(t *testing.T, set *percentages, all ...int) {
	t.Helper()
	set.mu.Lock()
	defer set.mu.Unlock()
	if !slices.Equal(set.all, all) {
		t.Fatalf("the percentages that were set are %v, not %v", set.all, all)
	}
}

// A busy process gets its room after a row of quick collections and not before, keeps it while it
// collects, and gives it back when it has not collected for idleGap.
func TestRoomIsOfBusyTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := int64(8 << 20)
		k, set := rig(&base)
		collect(k, busyAfter, busyGap) // the first has none before it
		want(t, set)
		collect(k, 1, busyGap)
		want(t, set, 400)
		collect(k, 100, idleGap-1)
		want(t, set, 400)
		time.Sleep(idleGap)
		synctest.Wait()
		want(t, set, 400, 100)
		collect(k, busyAfter, busyGap) // the first is late
		want(t, set, 400, 100)
		collect(k, 1, busyGap)
		want(t, set, 400, 100, 400)
		time.Sleep(idleGap)
		synctest.Wait()
	})
}

// One slow collection begins the row anew.
func TestStartsAndSlowProcessesGetNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := int64(8 << 20)
		k, set := rig(&base)
		for range 100 {
			collect(k, busyAfter-1, busyGap)
			collect(k, 1, busyGap+1)
		}
		want(t, set)
	})
}

// The room is 32 MiB whatever is alive, as far as the bounds of the percentage go, and a process
// that keeps more alive has what Go gives it. Small changes are not worth a stop of the process.
func TestRoomFollowsWhatIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := int64(16 << 20)
		k, set := rig(&base)
		collect(k, busyAfter+1, busyGap)
		want(t, set, 200)
		for _, c := range []struct {
			base int64
			set  []int
		}{
			{20 << 20, nil}, {32 << 20, []int{100}}, {1 << 40, nil}, {24 << 20, nil}, {8 << 20, []int{400}},
			{1 << 20, []int{most}}, {0, nil},
		} {
			base, set.all = c.base, nil
			collect(k, 1, time.Second)
			want(t, set, c.set...)
		}
		base = 0
		time.Sleep(idleGap)
		synctest.Wait()
	})
}

// percentage returns that of this process.
func percentage() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// GiveRoom hears of the collections of this process and sets its percentage. GOGC is the user's.
func TestGiveRoom(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	reached := func() bool {
		for range 200 {
			runtime.GC()
			runtime.Gosched() // to the finalizer
			if percentage() > 2*usual {
				return true
			}
		}
		return false
	}
	t.Setenv("GOGC", "100")
	GiveRoom()
	if reached() {
		t.Error("GOGC is set, and the percentage changed")
	}
	t.Setenv("GOGC", "")
	GiveRoom()
	if !reached() {
		t.Errorf("after 200 collections the percentage is %d", percentage())
	}
}
