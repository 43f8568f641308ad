package ledger

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// A store that removes nothing is told of once, until it removes something again.
func TestARefusedRemovalIsLogged(t *testing.T) {
	log := &testrig.Log{}
	f := &faulty{Place: Memory(), fail: func(int, string) (error, bool) { return nil, false }}
	l, err := Open(t.Context(), f, NewWriter("a"), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.every = 2
	for round := range 2 {
		f.fail = func(_ int, call string) (error, bool) {
			if call == "delete" {
				return errors.New("403 to remove"), false
			}
			return nil, false
		}
		for range 3 {
			fill(t, l, 2)
			l.Tidy(t.Context())
		}
		if got := strings.Count(log.String(), "403 to remove"); got != round+1 {
			t.Errorf("round %d: told %d times: %s", round, got, log)
		}
		f.fail = func(int, string) (error, bool) { return nil, false }
		l.Tidy(t.Context())
		if len(l.left) > 0 {
			t.Errorf("%q stay", l.left)
		}
	}
}

// More leftovers than are listed keep nobody from a store whose head says what counts.
func TestTooManyLeftovers(t *testing.T) {
	f := &faulty{Place: Memory(), fail: func(int, string) (error, bool) { return nil, false }}
	l := open(t, f, NewWriter("a"))
	fill(t, l, 3)
	f.fail = func(_ int, call string) (error, bool) {
		if call == "list" {
			return errors.New("more than 262144 objects"), false
		}
		return nil, false
	}
	log := &testrig.Log{}
	again, err := Open(t.Context(), f, NewWriter("b"), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, again.State(), l.State())
	if !strings.Contains(log.String(), "more than 262144 objects") {
		t.Error(log)
	}
	fill(t, again, 1)
	headless := &faulty{Place: Memory(), fail: f.fail}
	if _, err := Open(t.Context(), headless, NewWriter("c"), quiet); err == nil {
		t.Error("a store without a head that is not listed is taken for an empty one")
	}
}
