package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
)

func store(t *testing.T) *Store {
	t.Helper()
	s, err := NewStore(bustest.Start(t, nil).Connect(bus.GatewayInboxes), bus.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func look(t *testing.T, s *Store, last View) View {
	t.Helper()
	v, err := s.Look(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A write is over one revision alone, and takes the broker's time. A write whose answer was lost is
// found by its id as long as the document has it, and is told from one that was never stored.
func TestWrites(t *testing.T) {
	s := store(t)
	empty := look(t, s, View{})
	if empty.Epoch.IsZero() || empty.Revision != 0 || len(empty.Table.Pools) != 0 {
		t.Fatalf("%+v", empty)
	}
	first, err := s.Swap(t.Context(), empty, &Table{Pools: []*Pool{{Spec: Spec{Name: "a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(t.Context(), empty, &Table{}); !errors.Is(err, ErrConflict) {
		t.Errorf("a second write over the same revision: %v", err)
	}
	v := look(t, s, empty)
	p := v.Table.Find("A")
	if v.Revision != first || p == nil || p.Created.IsZero() || p.Created != p.Renewed ||
		v.Now().Before(p.Created) || time.Since(p.Created).Abs() > time.Minute ||
		v.Now().Add(-time.Second).After(time.Now()) {
		t.Fatalf("%+v %+v", v, p)
	}
	if again := look(t, s, v); again.Table != v.Table || !again.Same(v) {
		t.Error("an unchanged document was read again")
	}
	mine := v.Table.Writes[len(v.Table.Writes)-1]
	for i := range maxWrites + 2 {
		at, known := s.find(t.Context(), empty, mine)
		if want := i < maxWrites; known != want || known && at != first {
			t.Fatalf("after %d more writes: %d, %v", i, at, known)
		}
		if at, known := s.find(t.Context(), v, "never"); i > 0 && i <= maxWrites && (!known || at != 0) {
			t.Fatalf("a write that was never stored, after %d others: %d, %v", i, at, known)
		}
		now := look(t, s, View{})
		c := now.Table.Clone()
		c.Pools[0].Spec.Bundle = fmt.Sprint(i)
		if _, err := s.Swap(t.Context(), now, c); err != nil {
			t.Fatal(err)
		}
	}
	if q := look(t, s, View{}).Table.Find("a"); !q.Created.Equal(p.Created) || !q.Renewed.Equal(p.Renewed) {
		t.Errorf("times changed: %+v, before %+v", q, p)
	}
	if err := s.js.DeleteStream(t.Context(), bus.PoolsStream); err != nil {
		t.Fatal(err)
	}
	if gone := look(t, s, v); !gone.Epoch.IsZero() || gone.Revision != 0 || len(gone.Table.Pools) != 0 {
		t.Errorf("a bucket that is gone: %+v", gone)
	}
	if _, err := s.Swap(t.Context(), v, &Table{}); !errors.Is(err, ErrConflict) {
		t.Errorf("a write into no bucket: %v", err)
	}
}

// What is no document of pools is an error, and never pools.
func TestBadDocuments(t *testing.T) {
	for _, text := range []string{"{", `[]`, `{"pools":[null]}`, `{"pools":[{"spec":{"name":"a.b"}}]}`,
		`{"pools":[{"spec":{"name":""}}]}`, `{"pools":[{"created":"x"}]}`} {
		if _, err := decode([]byte(text), time.Now()); err == nil {
			t.Errorf("%s was read", text)
		}
	}
	if _, err := decode(make([]byte, maxBytes+1), time.Now()); err == nil {
		t.Error("a huge document was read")
	}
}
