package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/runtime/batch"
)

// rowOf is what the tests take for a label's row.
func rowOf(label string) []float32 { return []float32{float32(len(label)), float32(label[0])} }

func rowsOf(labels []string) (rows [][]float32) {
	for _, label := range labels {
		rows = append(rows, rowOf(label))
	}
	return rows
}

// checkQuery asks for labels, and checks their rows and which labels were computed for it.
func checkQuery(t *testing.T, c *labelCache, labels, computed []string) {
	t.Helper()
	var asked []string
	q, err := c.query(t.Context(), labels, func(labels []string) ([][]float32, error) {
		asked = append(asked, labels...)
		return rowsOf(labels), nil
	})
	if err != nil || q.N != len(labels) || !slices.Equal(q.Rows, slices.Concat(rowsOf(labels)...)) {
		t.Fatalf("%q: %v, %v", labels, q, err)
	}
	if !slices.Equal(asked, computed) {
		t.Errorf("%q: computed %q, want %q", labels, asked, computed)
	}
	if c.used > c.limit {
		t.Errorf("%d bytes, above %d", c.used, c.limit)
	}
	var sum int64
	for e := range c.known {
		sum += c.known[e].Value.(*labelEntry).bytes
	}
	if sum != c.used || c.order.Len() != len(c.known) || len(c.making) != 0 {
		t.Errorf("%d bytes of %d entries, %d counted, %d in order, %d in the making",
			sum, len(c.known), c.used, c.order.Len(), len(c.making))
	}
}

// A label is computed once, whichever lists it is in and in whatever order.
func TestLabelsAreComputedOnce(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	checkQuery(t, c, []string{"a", "b"}, []string{"a", "b"})
	checkQuery(t, c, []string{"b", "a"}, nil)
	checkQuery(t, c, []string{"b", "cc", "a"}, []string{"cc"})
	// no list is taken for another
	checkQuery(t, c, []string{"b1:a"}, []string{"b1:a"})
	checkQuery(t, c, []string{"b", "a"}, nil)
	checkQuery(t, c, []string{"1:a"}, []string{"1:a"})
}

// No label and no list has the key of another, whatever looks like lengths is in them.
func TestLabelKeysDiffer(t *testing.T) {
	labels := []string{"0", "1", "4", ":"}
	for from := 0; len(labels) < 4+16+64+256; from++ {
		for _, c := range []string{"0", "1", "4", ":"} {
			labels = append(labels, labels[from]+c)
		}
	}
	of := map[string]string{}
	add := func(key, what string) {
		if other, ok := of[key]; ok {
			t.Fatalf("%s and %s have the key %q", what, other, key)
		}
		of[key] = what
	}
	for _, a := range labels {
		add(labelKey(a), "label "+a)
		add(listKey([]string{a}), "list "+a)
		for _, b := range labels[:84] {
			add(listKey([]string{a, b}), "list "+a+" "+b)
		}
	}
}

// Equal lists have one query, so that a batch contains it once.
func TestEqualListsShareAQuery(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	encode := func(labels []string) ([][]float32, error) { return rowsOf(labels), nil }
	a, _ := c.query(t.Context(), []string{"a", "b"}, encode)
	b, _ := c.query(t.Context(), []string{"a", "b"}, encode)
	other, _ := c.query(t.Context(), []string{"b", "a"}, encode)
	if a != b || a == other {
		t.Error("equal lists have two queries, or different ones one")
	}
}

// The least recently used goes first; the bound holds, with more labels than it has room for, too.
func TestLabelCacheIsBounded(t *testing.T) {
	c := newLabelCache(6*(labelEntryBytes+16), nil) // three labels and the list of each
	checkQuery(t, c, []string{"a"}, []string{"a"})
	checkQuery(t, c, []string{"b"}, []string{"b"})
	checkQuery(t, c, []string{"c"}, []string{"c"})
	checkQuery(t, c, []string{"a", "b"}, nil) // the label a goes to the front, and its list goes
	checkQuery(t, c, []string{"d"}, []string{"d"})
	checkQuery(t, c, []string{"b", "a"}, nil)
	labels := make([]string, 100)
	for i := range labels {
		labels[i] = fmt.Sprint("label ", i)
	}
	checkQuery(t, c, labels, labels)
	checkQuery(t, newLabelCache(0, nil), labels, labels)
}

// An entry, of a label or of a list, is its key, its rows and what Go's map and list take.
func TestLabelCacheCountsKeysAndRows(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	q, err := c.query(t.Context(), []string{"a", "bb"}, func(labels []string) ([][]float32, error) {
		return rowsOf(labels), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	keys, rows := int64(len("la")+len("lbb")+len("s1:a2:bb")), int64(8+8+4*cap(q.Rows))
	if want := 3*labelEntryBytes + keys + rows; c.used != want {
		t.Errorf("%d bytes are counted, want %d", c.used, want)
	}
}

// ownerOfLabels has room for a number of bytes.
type ownerOfLabels struct {
	room    int64
	counted atomic.Int64
}

func (o *ownerOfLabels) CountKept(n int64)  { o.counted.Add(n) }
func (o *ownerOfLabels) RoomForKept() int64 { return o.room - o.counted.Load() }

// The owner of a cache counts all its bytes, and the cache has no more than its owner has room for.
func TestLabelCacheIsCounted(t *testing.T) {
	const label = labelEntryBytes + 2 + 8 // a label of one letter, or the list of a longer one
	o := &ownerOfLabels{room: 4 * (label + 2)}
	c := newLabelCache(1<<20, o)
	check := func(most int64) {
		t.Helper()
		if counted := o.counted.Load(); counted != c.used || c.used > most {
			t.Errorf("%d bytes, %d are counted, and at most %d are possible", c.used, counted, most)
		}
	}
	checkQuery(t, c, []string{"a"}, []string{"a"})
	check(o.room)
	checkQuery(t, c, []string{"b"}, []string{"b"})
	check(o.room)
	if len(c.known) != 4 {
		t.Errorf("%d entries, with room for two labels and their lists", len(c.known))
	}
	checkQuery(t, c, []string{"c"}, []string{"c"}) // a, used least recently, and its list go
	check(o.room)
	checkQuery(t, c, []string{"b"}, nil)
	checkQuery(t, c, []string{"a"}, []string{"a"})
	check(o.room)
	c.Drop()
	if check(0); len(c.known) != 0 {
		t.Errorf("%d entries after all were dropped", len(c.known))
	}
	checkQuery(t, c, []string{"b"}, []string{"b"})
	o.room = -1 // another model takes more than all the room
	checkQuery(t, c, []string{"d"}, []string{"d"})
	check(0)
}

// Callers that ask for a label at once compute it once; the caller that fails fails alone, and who
// has no time left waits no longer.
func TestLabelsAtOnce(t *testing.T) { synctest.Test(t, checkLabelsAtOnce) }

func checkLabelsAtOnce(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	release := make(chan struct{})
	failed := errors.New("failed")
	var mu sync.Mutex
	computed := map[string]int{}
	count := func(labels []string) ([][]float32, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, label := range labels {
			computed[label]++
		}
		return rowsOf(labels), nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		_, err := c.query(t.Context(), []string{"x", "y"}, func([]string) ([][]float32, error) {
			<-release
			return nil, failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("the caller that fails: %v", err)
		}
	})
	synctest.Wait()
	var queries [8]*batch.Query
	for i := range queries {
		all.Go(func() {
			labels := []string{"x", "z", "y"}
			if i%2 == 0 {
				slices.Reverse(labels)
			}
			q, err := c.query(context.Background(), labels, count)
			if err != nil || !slices.Equal(q.Rows, slices.Concat(rowsOf(labels)...)) {
				t.Errorf("caller %d: %v, %v", i, q, err)
			}
			queries[i] = q
		})
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, failed)
	defer cancel()
	began := time.Now()
	_, err := c.query(ctx, []string{"x"}, count)
	if waited := time.Since(began); !errors.Is(err, failed) || waited != time.Second {
		t.Errorf("a caller whose time is over waits for %v: %v", waited, err)
	}
	mu.Lock()
	if computed["x"]+computed["y"] != 0 || computed["z"] != 1 {
		t.Errorf("computed while all wait for the first caller: %v", computed)
	}
	mu.Unlock()
	close(release)
	all.Wait()
	for _, label := range []string{"x", "y", "z"} {
		if computed[label] != 1 {
			t.Errorf("%s was computed %d times", label, computed[label])
		}
	}
	for i, q := range queries {
		if q != queries[i%2] {
			t.Errorf("caller %d has a query of its own", i)
		}
	}
	checkQuery(t, c, []string{"x", "y", "z"}, nil)
}

// Caches of one owner, and callers of one, add at once: each sees room before any has added.
// When all are done the owner has no more than its room, and every answer is whole.
func TestLabelsAddedAtOnceFit(t *testing.T) { synctest.Test(t, checkLabelsAddedAtOnce) }

func checkLabelsAddedAtOnce(t *testing.T) {
	const label = labelEntryBytes + 2 + 8 // of one letter
	o := &ownerOfLabels{room: 3 * (label + 2)}
	caches := []*labelCache{newLabelCache(1<<20, o), newLabelCache(1<<20, o)}
	release := make(chan struct{})
	var all sync.WaitGroup
	for i, l := range []string{"a", "b", "c", "d", "e", "f"} {
		all.Go(func() {
			labels := []string{l}
			q, err := caches[i%2].query(t.Context(), labels, func(labels []string) ([][]float32, error) {
				<-release
				return rowsOf(labels), nil
			})
			if err != nil || !slices.Equal(q.Rows, rowOf(l)) {
				t.Errorf("%s: %v, %v", l, q, err)
			}
		})
	}
	synctest.Wait()
	close(release)
	all.Wait()
	counted, used := o.counted.Load(), caches[0].used+caches[1].used
	if counted != used || counted > o.room {
		t.Errorf("%d bytes, %d are counted, and %d are possible", used, counted, o.room)
	}
}

// An owner whose room has gone to others gets its own back at the next request, one that finds all
// its labels too.
func TestLabelsGiveWayWhenAskedFor(t *testing.T) {
	o := &ownerOfLabels{room: 1 << 20}
	c := newLabelCache(1<<20, o)
	checkQuery(t, c, []string{"a", "b"}, []string{"a", "b"})
	o.room = 0 // a model was loaded
	checkQuery(t, c, []string{"a", "b"}, nil)
	if o.counted.Load() != 0 || c.used != 0 {
		t.Errorf("%d bytes, %d are counted, with room for none", c.used, o.counted.Load())
	}
}

// Rows that a request has stay as they are, whatever the cache does with its own.
func TestLabelsInUseAreKept(t *testing.T) {
	labels := []string{"a", "bb", "ccc"}
	encode := func(labels []string) ([][]float32, error) { return rowsOf(labels), nil }
	want := slices.Concat(rowsOf(labels)...)
	for what, lose := range map[string]func(*labelCache){
		"dropped": (*labelCache).Drop,
		"displaced": func(c *labelCache) {
			for i := range 100 {
				if _, err := c.query(t.Context(), []string{fmt.Sprint("l", i)}, encode); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		c := newLabelCache(8*(labelEntryBytes+16), nil)
		q, err := c.query(t.Context(), labels, encode)
		if err != nil {
			t.Fatal(err)
		}
		row := c.known[labelKey("a")].Value.(*labelEntry).row
		lose(c)
		if c.known[listKey(labels)] != nil {
			t.Fatalf("%s: the list is still known", what)
		}
		if !slices.Equal(q.Rows, want) || q.N != len(labels) || !slices.Equal(row, rowOf("a")) {
			t.Errorf("%s: %v and %v, want %v and %v", what, q, row, want, rowOf("a"))
		}
	}
}

// A panic of a caller is no end of its labels, for those who wait for them neither.
func TestLabelsAfterAPanic(t *testing.T) { synctest.Test(t, checkLabelsAfterAPanic) }

func checkLabelsAfterAPanic(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	release := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer func() { _ = recover() }()
		_, _ = c.query(t.Context(), []string{"x", "y"}, func([]string) ([][]float32, error) {
			<-release
			panic("planted")
		})
	})
	synctest.Wait()
	all.Go(func() {
		q, err := c.query(t.Context(), []string{"y"}, func(labels []string) ([][]float32, error) {
			return rowsOf(labels), nil
		})
		if err != nil || !slices.Equal(q.Rows, rowOf("y")) {
			t.Errorf("who waited: %v, %v", q, err)
		}
	})
	synctest.Wait()
	close(release)
	all.Wait()
	checkQuery(t, c, []string{"x", "y"}, []string{"x"})
}

// The bound holds for labels that are computed for a request that then ends without an answer.
func TestLabelsOfAnEndedRequestAreBounded(t *testing.T) {
	synctest.Test(t, checkLabelsOfAnEndedRequest)
}

func checkLabelsOfAnEndedRequest(t *testing.T) {
	c := newLabelCache(6*(labelEntryBytes+16), nil)
	encode := func(labels []string) ([][]float32, error) { return rowsOf(labels), nil }
	release := make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := c.query(t.Context(), []string{"slow"}, func(labels []string) ([][]float32, error) {
			<-release
			return encode(labels)
		}); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	labels := []string{"slow"}
	for i := range 50 {
		labels = append(labels, fmt.Sprint("label ", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.query(ctx, labels, encode); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the label of another: %v", err)
	}
	if c.used == 0 || c.used > c.limit {
		t.Errorf("%d bytes are kept, with a bound of %d", c.used, c.limit)
	}
	close(release)
	first.Wait()
}

// Who waits for several labels of another caller gets each one's own row.
func TestLabelsOfAnotherCaller(t *testing.T) { synctest.Test(t, checkLabelsOfAnotherCaller) }

func checkLabelsOfAnotherCaller(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	release := make(chan struct{})
	var all sync.WaitGroup
	for _, labels := range [][]string{{"a", "bb", "ccc"}, {"ccc", "a", "bb"}} { // two lists
		all.Go(func() {
			q, err := c.query(t.Context(), labels, func(labels []string) ([][]float32, error) {
				<-release
				return rowsOf(labels), nil
			})
			if err != nil || !slices.Equal(q.Rows, slices.Concat(rowsOf(labels)...)) {
				t.Errorf("%v, %v", q, err)
			}
		})
	}
	synctest.Wait()
	close(release)
	all.Wait()
}
