package obs

import (
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// No report fails a scrape: repeated series are added up.
func TestGauges(t *testing.T) {
	r := NewRegistry()
	n := 0.0
	r.MustRegister(Gauges([]string{"who", "where"}, func(set func(int, float64, ...string)) {
		n++
		set(0, 3, "a", "x")
		set(0, 4, "a", "x")
		set(0, 1, "a", "y")
		set(1, n, "a", "x")
		set(1, 5, "odd \xff", "x")
		set(1, 6, "odd \xfe", "x")
	}, "test_first", "First.", "test_second", "Second."))
	r.MustRegister(Gauges(nil, func(set func(int, float64, ...string)) { set(0, 9) },
		"test_plain", "No labels."))
	for scrape := range 2 {
		got, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{7, "test_first", []string{"a", "x"}}, {1, "test_first", []string{"a", "y"}},
			{float64(scrape + 1), "test_second", []string{"a", "x"}},
			{9, "test_plain", nil},
			{11, "test_second", []string{"odd \ufffd", "x"}}, {-1, "test_second", []string{"a", "y"}},
		} {
			if v := testrig.MetricOf(got, c.name, c.labels...); v != c.want {
				t.Errorf("scrape %d: %s of %q is %v, want %v", scrape, c.name, c.labels, v, c.want)
			}
		}
		if testrig.MetricOf(got, "go_goroutines") < 1 {
			t.Error("the Go collector is not there")
		}
	}
}
