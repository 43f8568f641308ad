package screen

import (
	"testing"
	"unicode/utf8"
)

func TestSpark(t *testing.T) {
	if got := Spark([]float64{0, 1, 2, 4, 7, 7}, 5); got != "▂▃▅██" {
		t.Errorf("%s", got)
	}
	if got := Spark([]float64{0, 0}, 9); got != "▁▁" {
		t.Errorf("%s", got)
	}
	if got := Spark(nil, 9) + Spark([]float64{1}, 0); got != "" {
		t.Errorf("%s", got)
	}
}

// A text is cut to columns, not bytes; a colour takes none and ends where it is cut.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"plain", 9, "plain"}, {"plain", 3, "pla"}, {"ä…x", 2, "ä…"}, {"", 0, ""}, {"x", 0, ""},
		{Paint("31", "red") + "!", 2, "\x1b[31mre\x1b[0m"}, {Paint("31", "red"), 3, Paint("31", "red")},
	} {
		if got := Fit(c.in, c.n); got != c.want || !utf8.ValidString(got) {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// What a server says cannot move the cursor.
func TestPrintable(t *testing.T) {
	if got := Printable("a\x1b[2J\n\u009bb\x7f…"); got != "a?[2J??b?…" {
		t.Errorf("%q", got)
	}
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"0 KiB": Size(1023), "1.0 MiB": Size(1 << 20), "2.5 GiB": Size(5 << 29), "9999.0": Count(9999),
		"10.0 k": Count(10000), "2.50 M": Count(2.5e6), "1 min 1 s": Uptime(61), "1 h 1 min": Uptime(3661),
		"2 d 1 h": Uptime(176400),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var line []float64
	for i := range History + 5 {
		line = Push(line, float64(i))
	}
	if len(line) != History || line[0] != 5 {
		t.Errorf("%d points from %v", len(line), line[0])
	}
}
