package alias

import (
	"fmt"
	"strings"
	"testing"
)

// A request id always gets the same target, and each target its share of many ids.
func TestTargets(t *testing.T) {
	table, err := Parse(`{"best":[{"model":"org/a","weight":90},{"model":"org/b","weight":9},
		{"model":"org/c","weight":1}],"one":[{"model":"one","weight":1}]}`)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	count := map[string]int{}
	for i := range n {
		id := fmt.Sprint("request-", i)
		m, ok := table.Target("best", id)
		if again, _ := table.Target("best", id); !ok || again != m {
			t.Fatalf("%s: %q, then %q", id, m, again)
		}
		count[m]++
	}
	for m, want := range map[string]int{"org/a": 90, "org/b": 9, "org/c": 1} {
		if got := count[m] * 100; got < want*n*9/10 || got > want*n*11/10 {
			t.Errorf("%s got %d of %d, want %d %%", m, count[m], n, want)
		}
	}
	if m, ok := table.Target("one", ""); m != "one" || !ok {
		t.Errorf("%q", m)
	}
	if m, ok := table.Target("org/a", "x"); ok || m != "" {
		t.Errorf("a name that is none: %q", m)
	}
	if m := table.Heaviest("best"); m != "org/a" {
		t.Errorf("the heaviest is %q", m)
	}
	if _, ok := Table(nil).Target("best", "x"); ok {
		t.Error("no table has targets")
	}
}

func TestBadTables(t *testing.T) {
	for text, want := range map[string]string{
		"": "no object", "[]": "no object", `{"a":[]}`: "0 targets", `{"a":null}`: "0 targets",
		`{"":[{"model":"x","weight":1}]}`:                                 "1 to 256 bytes",
		`{"a":[{"model":"","weight":1}]}`:                                 "target 0: model",
		`{"a":[{"model":"x"}]}`:                                           "weight is 0",
		`{"a":[{"model":"x","weight":-1}]}`:                               "no object",
		`{"a":[{"model":"x","weight":1000001}]}`:                          "use 1 to 1000000",
		`{"a":[{"model":"x","weight":1,"w":2}]}`:                          "unknown field",
		`{"a":[{"model":"x","weight":1},{"model":"x","weight":1}]}`:       `"x" is there twice`,
		`{"a":[{"model":"b","weight":1}],"b":[{"model":"x","weight":1}]}`: "is an alias too",
		`{} {}`: "more after", strings.Repeat(" ", maxBytes+1): "the limit is",
	} {
		if table, err := Parse(text); table != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
