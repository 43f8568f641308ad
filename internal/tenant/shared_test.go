package tenant

import (
	"math"
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
