package registry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/guard"
)

// A load that panics in any of its functions fails alone: those who wait get the failure, it is not
// tried again, and others are fetched and packed as before.
func TestPanicFailsItsLoadAlone(t *testing.T) {
	type load = Load[*fake]
	bad := func() { panic("a fault") }
	for name, l := range map[string]load{
		"Find":  {Find: func(context.Context) (bool, error) { bad(); return false, nil }, Pack: ok(nil).Pack},
		"Fetch": {Fetch: func(context.Context) error { bad(); return nil }, Pack: ok(nil).Pack},
		"Pack":  by(func() (*fake, error) { bad(); return nil, nil }),
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			r := New[*fake](Options{Fetches: 1, NoMemory: func(error) bool { return true },
				Panicked: func(key string, p *guard.Panic) {
					told = append(told, key)
					if p.Value != "a fault" ||
						!strings.Contains(string(p.Stack), "TestPanicFailsItsLoadAlone") {
						t.Errorf("%s: %v by\n%s", name, p.Value, p.Stack)
					}
				}})
			dropped := 0
			l.Drop = func() { dropped++ }
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				_, err := r.Acquire(ctx, "a", l)
				var f *Failure
				var p *guard.Panic
				if !errors.As(err, &f) || !f.Permanent || !errors.As(err, &p) ||
					p.Error() != "panic: a fault" {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if dropped != 1 || len(told) != 1 || told[0] != "a" {
				t.Errorf("%s: dropped %d times, told of %q", name, dropped, told)
			}
			good := ok(&fake{})
			good.Fetch = func(context.Context) error { return nil }
			ref, err := r.Acquire(ctx, "b", good)
			if err != nil {
				t.Fatalf("%s: another model: %v", name, err)
			}
			ref.Release()
			r.Close()
		})
	}
}

// What is fetched and packed beside loads gives its turn back when it panics.
func TestPanicGivesTheTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[*fake](Options{Fetches: 1})
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var p *guard.Panic
		if err := r.Fetch(ctx, func(context.Context) error { panic(1) }); !errors.As(err, &p) {
			t.Error(err)
		}
		if err := r.PackAlone(ctx, func() error { panic(2) }); !errors.As(err, &p) {
			t.Error(err)
		}
		if err := r.Fetch(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := r.PackAlone(ctx, func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
