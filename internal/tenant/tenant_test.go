package tenant

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/testrig"
)

// file has every key.
const file = `
tenants:
  - name: search
    tokens: [search-token, next-search-token]
    models: ["BAAI/*", org/one]
    pools: [default, Eval]
    items_per_s: 100
    in_flight_items: 50
    priority: low
    max_priority: normal
    hold: 60s
  - name: watcher
    token_sha256: [` + sumOfWatch + `]
    roles: [metrics]
`

// sumOfWatch is the SHA-256 of "watch".
const sumOfWatch = "89c43c8df51bd6fcf28f6b5c8c6e5b6b9c8a1d2b9f9c5a1f0d9b3c1e2f3a4b5c"

// write writes a tokens file with the right sum.
func write(t *testing.T, path, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, sumOfWatch, fmt.Sprintf("%x", hashOf("watch")))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, text string) *Access {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, text)
	a, err := Open(Options{Keys: []string{"plain"}, File: path})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheFile(t *testing.T) {
	a := open(t, file)
	for token, name := range map[string]string{
		"search-token": "search", "next-search-token": "search", "watch": "watcher", "plain": "key-1", "": "",
		"search-toke": "", "search-tokens": "", strings.Repeat("x", 600): "",
	} {
		if got := a.Find(token).Key(); got != name {
			t.Errorf("%.20q is of %q, want %q", token, got, name)
		}
	}
	s := a.Find("search-token")
	for id, want := range map[string]bool{"BAAI/bge-m3": true, "baai/x:fast": true, "org/one": true,
		"ORG/One:fast": true, "org/one2": false, "org/on": false, "x/BAAI/y": false,
		"BAAI/x:/secret/y": false, "org/one:/secret/y": false, "fast:/org/one": true} {
		if s.MayUseModel(id) != want || !a.Find("plain").MayUseModel(id) {
			t.Errorf("model %s: %v", id, !want)
		}
	}
	if !s.MayUsePool("eval") || s.MayUsePool("other") || s.Pool() != "default" ||
		a.Find("plain").Pool() != "" {
		t.Error("pools")
	}
	if s.Has(Metrics) || !s.Has(Inference|Metrics) || a.Find("watch").Has(Inference) ||
		!a.Find("plain").Has(Metrics) {
		t.Error("roles")
	}
	for asked, want := range map[string]Priority{"": Low, "high": Normal, "NORMAL": Normal, "low": Low} {
		if p, ok := s.PriorityOf(asked); p != want || !ok {
			t.Errorf("priority %q: %v, want %v", asked, p, want)
		}
	}
	if _, ok := s.PriorityOf("urgent"); ok {
		t.Error("there is no priority urgent")
	}
	if s.Hold() != time.Minute || a.Find("plain").Hold() != 0 {
		t.Error("hold")
	}
	var nobody *Tenant
	if !nobody.Has(Metrics) || !nobody.MayUseModel("x") || !nobody.MayUsePool("x") || nobody.Hold() != 0 ||
		nobody.Key() != "" || nobody.Refusal(time.Now()) != nil {
		t.Error("an open server restricts nobody")
	}
}

// A bad file names line, key and what is possible, and never a token.
func TestBadFiles(t *testing.T) {
	one := func(more string) string { return "tenants:\n  - name: a\n    tokens: [sekret]\n" + more }
	for text, want := range map[string]string{
		"":                                       "empty",
		"tenants: []":                            "at least one tenant",
		"tenants: {}":                            "must be a list",
		"[]":                                     "must be a map with the keys tenants",
		"tenants:\n\t- name: a":                  "cannot start any token",
		one("    quota: 3"):                      `line 4: unknown key "quota"; the keys of a tenant are name, tokens`,
		one("    name: b"):                       `line 4: the key "name" is there twice`,
		one("  - name: a\n    tokens: [b]"):      `the name "a" is there twice`,
		one("  - name: b\n    tokens: [sekret]"): `a token of "b" is there twice`,
		one("    items_per_s: 0"):                "items_per_s must be a number above 0",
		one("    items_per_s: .nan"):             "items_per_s must be",
		one("    items_per_s: -1"):               "items_per_s must be",
		one("    in_flight_items: 1.5"):          "in_flight_items must be a whole number",
		one("    in_flight_items: 1e300"):        "in_flight_items must be",
		one("    priority: urgent"):              `priority is "urgent"; use high, normal or low`,
		one("    priority: high\n    max_priority: low"): "priority high is above max_priority low",
		one("    hold: 20m"):                             `hold: "20m" is no time between 0s and 10m0s`,
		one("    roles: [root]"):                         `"root"; use inference, metrics or admin`,
		one("    roles: []"):                             "roles must be a list of 1 to",
		one("    models: []"):                            "models must be a list of 1 to",
		one("    models: [\"a*b\"]"):                     "only the last character may be *",
		one("    token_sha256: [abc]"):                   "token_sha256[0] must be 64 hexadecimal digits",
		one("    pools: &x [a]"):                         "anchors and aliases",
		one("    pools: [[a]]"):                          "pools[0] must be a text",
		one("---\ntenants: []"):                          "a second YAML document",
		"tenants:\n  - name: a b\n    tokens: [x]":       "visible ASCII characters without spaces",
		"tenants:\n  - name: a\n":                        "a tenant needs tokens or token_sha256",
		"tenants:\n  - name: key-1\n    tokens: [x]":     "is that of a plain key",
		"tenants:\n  - name: a\n    tokens: [null]":      "tokens[0] must be a text",
		"tenants:\n  - name: a\n    tokens: [~]":         "tokens[0] must be a text",
		"tenants:\n  - name: ~\n    tokens: [x]":         "name must be 1 to 64",
		one("    models: [NULL]"):                        "models[0] must be a text",
		"tenants:\n  - name: a\n    tokens: [\"a b\"]":   "tokens[0]: it holds spaces",
		"a: &a [x,x]\nb: &b [*a,*a]\ntenants: *b":        "anchors and aliases",
		"tenants: " + strings.Repeat("[", 1000):          "nested",
		"tenants: \"\x00\"":                              "",
		strings.Repeat(" ", maxFileBytes+1):              "more than the limit",
	} {
		path := filepath.Join(t.TempDir(), "tokens.yaml")
		write(t, path, text)
		a, err := Open(Options{Keys: []string{"plain"}, File: path})
		if a != nil || err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "sekret") {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	if a, err := Open(Options{File: filepath.Join(t.TempDir(), "none")}); a != nil || err == nil {
		t.Errorf("a file that is not there: %v", err)
	}
	if a, err := Open(Options{}); a != nil || err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// A changed file is in force after the next look; one that cannot be used leaves the earlier one.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, file)
	log := &testrig.Log{}
	a, err := Open(Options{File: path, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(a)
	for _, c := range []struct {
		text, token string
		known       bool
		broken      float64
	}{
		{"tenants:\n  - name: other\n    tokens: [other-token]\n", "other-token", true, 0},
		{"tenants:\n  - name: other\n    tokens: [other-token]\n    quota: 1\n", "other-token", true, 1},
		{"", "other-token", true, 1},
		{file, "other-token", false, 0},
		{"remove", "search-token", true, 1},
		{file, "search-token", true, 0},
	} {
		if c.text == "remove" {
			err = os.Remove(path)
		} else {
			next := path + ".next"
			write(t, next, c.text)
			err = os.Rename(next, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.refresh()
		if got := a.Find(c.token) != nil; got != c.known {
			t.Errorf("%.40q: %s known %v", c.text, c.token, got)
		}
		if got := testrig.Metric(t, r, "sie_tenant_file_broken"); got != c.broken {
			t.Errorf("%.40q: broken %v", c.text, got)
		}
	}
	if kept := testrig.Metric(t, r, "sie_tenant_file_reloads_total", "kept"); kept != 3 {
		t.Errorf("%v reloads kept the earlier file", kept)
	}
	if !strings.Contains(log.String(), "cannot be used") || strings.Contains(log.String(), "other-token") {
		t.Error(log)
	}
}

// A file that could not be read is read when it can be, though nothing else of it has changed.
func TestAFileThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, file)
	a, err := Open(Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	read := a.read
	a.read = func() ([]byte, error) { return nil, os.ErrPermission }
	write(t, path+".next", strings.ReplaceAll(file, "search-token", "changed-token"))
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.refresh()
	}
	if a.Find("search-token") == nil || !a.broken || a.loads[0] != 1 {
		t.Errorf("broken %v, %d loads", a.broken, a.loads)
	}
	a.read = read
	a.refresh()
	if a.Find("changed-token") == nil || a.Find("search-token") != nil || a.broken {
		t.Error("the file that can be read is not in force")
	}
}

// A request has the file looked at once in a second, and not more often.
func TestLooks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, file)
	synctest.Test(t, func(t *testing.T) {
		a, err := Open(Options{File: path})
		if err != nil {
			t.Fatal(err)
		}
		next := strings.ReplaceAll(file, "search-token", "changed-token")
		write(t, path+".next", next)
		if err := os.Rename(path+".next", path); err != nil {
			t.Fatal(err)
		}
		a.Find("x")
		synctest.Wait()
		if a.Find("changed-token") != nil {
			t.Error("it was looked at too early")
		}
		time.Sleep(time.Second)
		a.Find("x")
		synctest.Wait()
		if a.Find("changed-token") == nil || a.Find("search-token") != nil {
			t.Error("it was not looked at")
		}
	})
}

// quotaModel is what a quota promises, in simple terms: the items admitted since any moment are at
// most those of a burst and of the time since, and the last request's.
type quotaModel struct {
	at    []time.Time
	items []int
}

func (m *quotaModel) check(t *testing.T, perSecond float64) {
	t.Helper()
	for from := range m.at {
		sum := 0
		for i := from; i < len(m.at); i++ {
			sum += m.items[i]
			most := perSecond*(m.at[i].Sub(m.at[from])+burst).Seconds() + float64(m.items[i]) + 1e-6
			if float64(sum) > most {
				t.Fatalf("%d items in %v", sum, m.at[i].Sub(m.at[from]))
			}
		}
	}
}

// Whatever comes when, also while the file changes and the tenant is removed and comes back: the
// bounds hold, nothing leaks, and after the Retry-After there is an item to be had.
func TestQuotasByRandomOperations(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			a := open(t, file)
			without := "tenants:\n  - name: other\n    tokens: [x]\n"
			var model quotaModel
			var running []func()
			inFlight := func() (n int) {
				u := a.usages["search"]
				if u == nil {
					return 0
				}
				return u.inFlight
			}
			items, old := 0, a.Find("search-token")
			var sizes []int
			for range 300 {
				switch r.IntN(12) {
				case 0: // the file changes in the middle
					text := file
					if r.IntN(2) == 0 {
						text = without
					}
					write(t, a.file+".next", text)
					if err := os.Rename(a.file+".next", a.file); err != nil {
						t.Fatal(err)
					}
					a.refresh()
					if s := a.Find("search-token"); s != nil && s.used != old.used && items > 0 {
						t.Fatal("items in flight were forgotten")
					} else if s != nil && s.used != old.used {
						model, old = quotaModel{}, s // a tenant that was away and used nothing is a new one
					}
				case 1, 2, 3:
					time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
				case 4, 5, 6:
					if len(running) > 0 {
						i := r.IntN(len(running))
						running[i]()
						items -= sizes[i]
						running, sizes = slices.Delete(running, i, i+1), slices.Delete(sizes, i, i+1)
					}
				default:
					s := a.Find("search-token")
					if s == nil {
						continue
					}
					n, now := r.IntN(60), time.Now()
					release, err := s.Take(t.Context(), n)
					switch {
					case err == nil:
						items += n
						running, sizes = append(running, release), append(sizes, n)
						model.at, model.items = append(model.at, now), append(model.items, n)
					case err.Status == 400:
						if n <= 50 {
							t.Fatalf("%d items: %v", n, err)
						}
					case err.Code != errs.RateLimited || err.RetryAfter < time.Second:
						t.Fatalf("%v, retry after %v", err, err.RetryAfter)
					}
				}
				if s := a.Find("search-token"); s != nil && (inFlight() != items || items > 50) {
					t.Fatalf("%d items in flight, counted %d", inFlight(), items)
				}
			}
			model.check(t, 100)
			for _, release := range running {
				release()
			}
			if inFlight() != 0 {
				t.Errorf("%d items leaked", inFlight())
			}
			if s := a.Find("search-token"); s != nil {
				if e := s.Refusal(time.Now()); e != nil {
					time.Sleep(e.RetryAfter)
					if e := s.Refusal(time.Now()); e != nil {
						t.Errorf("after its Retry-After: %v", e)
					}
				}
			}
		})
	}
}

// A tenant sees itself, and one with the role of metrics everybody.
func TestUsage(t *testing.T) {
	a := open(t, file)
	search, watcher, plain := a.Find("search-token"), a.Find("watch"), a.Find("plain")
	release, err := search.Take(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	search.Forbid("do that")
	want := Usage{Name: "search", Priority: "low", Pools: []string{"default", "Eval"},
		Models: []string{"baai/*", "org/one"}, ItemsPerSecond: 100, InFlightLimit: 50, InFlight: 3,
		Requests: 1, Items: 3, Forbidden: 1}
	if got := a.Usage(search); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	names := func(t *Tenant) (out []string) {
		for _, u := range a.Usage(t) {
			out = append(out, u.Name)
		}
		return out
	}
	for _, t1 := range []*Tenant{watcher, plain} { // a plain key has the role too
		if got := names(t1); !slices.Equal(got, []string{plain.Name, "search", "watcher"}) {
			t.Errorf("%s sees %v", t1.Name, got)
		}
	}
	var none *Access
	if len(none.Usage(nil)) != 0 || len(a.Usage(nil)) != 0 {
		t.Error("somebody without a token sees tenants")
	}
}

// A moment counts once, whichever of two requests that read the time gets to count first.
func TestLevelsGrowOnce(t *testing.T) {
	u, now := &usage{}, time.Now()
	u.fill(100, now)
	u.level = 0
	for range 10 {
		u.fill(100, now.Add(10*time.Millisecond))
		u.fill(100, now)
	}
	if u.level < 0.99 || u.level > 1.01 {
		t.Errorf("%v items after 10 ms of 100 a second", u.level)
	}
}
