package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
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

// ownerOfLabels has room for a number of bytes.
type ownerOfLabels struct{ room, counted int64 }

func (o *ownerOfLabels) CountKept(n int64)  { o.counted += n }
func (o *ownerOfLabels) RoomForKept() int64 { return o.room - o.counted }

// The owner of a cache counts all its bytes, and the cache has no more than its owner has room for.
func TestLabelCacheIsCounted(t *testing.T) {
	const label = labelEntryBytes + 2 + 8 // a label of one letter, or the list of a longer one
	o := &ownerOfLabels{room: 4 * (label + 2)}
	c := newLabelCache(1<<20, o)
	check := func(most int64) {
		t.Helper()
		if o.counted != c.used || c.used > most {
			t.Errorf("%d bytes, %d are counted, and at most %d are possible", c.used, o.counted, most)
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
	if check(0); o.counted != 0 || len(c.known) != 0 {
		t.Errorf("%d entries of %d bytes after all were dropped", len(c.known), o.counted)
	}
	checkQuery(t, c, []string{"b"}, []string{"b"})
	o.room = -1 // another model takes more than all the room
	checkQuery(t, c, []string{"d"}, []string{"d"})
	check(0)
}

// Callers that ask for a label at once compute it once; the caller that fails fails alone.
func TestLabelsAtOnce(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	begun, release := make(chan struct{}), make(chan struct{})
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
			close(begun)
			<-release
			return nil, failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("the caller that fails: %v", err)
		}
	})
	<-begun
	for i := range 8 {
		all.Go(func() {
			labels := []string{"x", "z", "y"}
			if i%2 == 0 {
				slices.Reverse(labels)
			}
			q, err := c.query(context.Background(), labels, count)
			if err != nil || !slices.Equal(q.Rows, slices.Concat(rowsOf(labels)...)) {
				t.Errorf("caller %d: %v, %v", i, q, err)
			}
		})
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, failed)
	defer cancel()
	if _, err := c.query(ctx, []string{"x"}, count); !errors.Is(err, failed) {
		t.Errorf("a caller whose time is over waits: %v", err)
	}
	close(release)
	all.Wait()
	for _, label := range []string{"x", "y", "z"} {
		if computed[label] != 1 {
			t.Errorf("%s was computed %d times", label, computed[label])
		}
	}
	checkQuery(t, c, []string{"x", "y", "z"}, nil)
}

// A panic of a caller is no end of the label.
func TestLabelsAfterAPanic(t *testing.T) {
	c := newLabelCache(1<<20, nil)
	func() {
		defer func() { _ = recover() }()
		_, _ = c.query(t.Context(), []string{"x"}, func([]string) ([][]float32, error) { panic("planted") })
	}()
	checkQuery(t, c, []string{"x"}, []string{"x"})
}
