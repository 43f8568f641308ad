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

// The shares of the targets are those of the weights, for ids as clients and we make them: the
// deviation over 20 targets is what chance makes of it (chi-squared, 19 degrees of freedom: above
// 43.8 once in a thousand times, and the ids are the same in every run).
func TestSharesOfManyTargets(t *testing.T) {
	var list []string
	total := 0
	for i := range 20 {
		list = append(list, fmt.Sprintf(`{"model":"org/%d","weight":%d}`, i, 1+i*i))
		total += 1 + i*i
	}
	table, err := Parse(`{"many":[` + strings.Join(list, ",") + `]}`)
	if err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]func(i int) string{
		"numbers": func(i int) string { return fmt.Sprint(i) },
		"ids that differ in their end": func(i int) string {
			return fmt.Sprintf("0198b3a0-7c00-7000-8000-%012x", i)
		},
	} {
		const n = 200_000
		count := map[string]float64{}
		for i := range n {
			m, _ := table.Target("many", id(i))
			count[m]++
		}
		chi := 0.0
		for i := range 20 {
			want := float64(n*(1+i*i)) / float64(total)
			d := count[fmt.Sprint("org/", i)] - want
			chi += d * d / want
		}
		if chi > 43.8 {
			t.Errorf("%s: chi-squared is %.1f", what, chi)
		}
	}
	names := table.Names()
	if len(names) != 20 || len(names["org/7"]) != 1 || names["org/7"][0] != "many" {
		t.Errorf("%v", names)
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
		`{"a":[{"model":"x","weight":1}],"a":[{"model":"y","weight":1}]}`: `the key "a" is there twice`,
		`{"a":[{"model":"x","weight":1,"weight":2}]}`:                     `"a": the key "weight" is there`,
		`{"a":[{"model":"x","weight":1}],"\u0061":[]}`:                    `the key "a" is there twice`,
		strings.Repeat("[", 1000):                                         "no object",
		`{} {}`:                                                           "more after",
		strings.Repeat(" ", maxBytes+1):                                   "the limit is",
	} {
		if table, err := Parse(text); table != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
