package tenant

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What no server can have used leaves no debt: a tenant of 100 items a second is served again after
// seconds. What one can have used counts.
func TestWhatIsHeardIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		heard Use
		paid  time.Duration // until the tenant is served
	}{
		"items":        {Use{Items: math.MaxUint64, Level: 50}, 4 * time.Second},
		"not a number": {Use{Items: 10, Level: math.NaN()}, 0},
		"infinite":     {Use{Items: 10, Level: math.Inf(1)}, 0},
		"level":        {Use{Level: -1e19}, 0}, // of a server that begins to count again
		"in flight":    {Use{Items: 10, Level: 80, InFlight: 1 << 60}, 0},
		"negative":     {Use{Items: 10, Level: 80, InFlight: -1}, 0},
		"large":        {Use{Items: 1010, Level: -900}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := open(t, file)
				search := a.Find("search-token")
				heard := func(x Use) {
					x.Name = "search"
					a.Heard("other", []Use{x})
				}
				heard(Use{Items: 10, Level: 90})
				heard(c.heard)
				time.Sleep(c.paid + time.Second/10)
				if e := search.Refusal(time.Now()); e != nil {
					t.Errorf("after %v: %v, retry after %v", c.paid, e, e.RetryAfter)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a := open(t, file)
		a.Heard("other", []Use{{Name: "search", Items: 10, Level: 90}})
		a.Heard("other", []Use{{Name: "search", Items: 1010, Level: -900}})
		if u := a.usages["search"]; u.level != -910 {
			t.Errorf("a large request: level %v", u.level)
		}
	})
}

// A request that waited in vain for the others is told which of its quotas has no share left.
func TestWhichShareIsUsedUp(t *testing.T) {
	for name, c := range map[string]struct {
		first  int // items of the request before, which the others do not know
		told   bool
		over   string
		counts [2]uint64 // over the rate, in flight
	}{
		"in flight": {26, false, "in flight", [2]uint64{0, 1}}, // of 50; of the rate there is enough
		"rate":      {26, true, "per second", [2]uint64{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := file
				if c.told { // what is in flight is known, what was admitted is not
					text = strings.ReplaceAll(file, "items_per_s: 100", "items_per_s: 27")
				}
				a := open(t, text)
				a.SetPeers(1)
				search := a.Find("search-token")
				release, err := search.Take(t.Context(), c.first)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
				if c.told {
					a.Told([]Use{{Name: "search", InFlight: c.first}})
				}
				_, err = search.Take(t.Context(), 1)
				got := [2]uint64{search.used.counts.OverRate, search.used.counts.OverInFlight}
				if err == nil || !strings.Contains(err.Error(), c.over) || got != c.counts {
					t.Errorf("%v, counted %v", err, got)
				}
			})
		})
	}
}
