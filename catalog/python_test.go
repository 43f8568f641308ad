package catalog

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// pythonGolden is testdata/python.json, written by testdata/golden.py.
type pythonGolden struct {
	Bundle string // the hash of the bundle gliner over three documents
	Close  []struct {
		Word string
		In   string
		Want []string
	}
	Lists  map[string][]string
	Ratios []struct {
		Word, Other string
		Want        float64
	}
	Format []struct {
		Template, Text, Instruction string
		Want                        *string
	}
}

func readPython(t *testing.T) pythonGolden {
	t.Helper()
	raw, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	var g pythonGolden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Close) < 50 || len(g.Ratios) < 300 || len(g.Format) < 60 {
		t.Fatalf("golden file has %d, %d and %d cases", len(g.Close), len(g.Ratios), len(g.Format))
	}
	return g
}

func TestCloseMatchesEqualsDifflib(t *testing.T) {
	g := readPython(t)
	for _, c := range g.Close {
		got := closeMatches(c.Word, g.Lists[c.In], 3, 0.6)
		if !slices.Equal(got, c.Want) {
			t.Errorf("%q in %s: got %q, want %q", c.Word, c.In, got, c.Want)
		}
	}
}

func TestRatioEqualsDifflib(t *testing.T) {
	for _, c := range readPython(t).Ratios {
		if got := newMatcher(c.Word).ratioAtLeast(c.Other, 0); math.Abs(got-c.Want) > 1e-15 {
			t.Errorf("%q, %q: got %v, want %v", c.Word, c.Other, got, c.Want)
		}
		// The quick bounds may only reject a candidate that the full ratio would reject.
		for _, cutoff := range []float64{0.3, 0.6, 0.9} {
			got := newMatcher(c.Word).ratioAtLeast(c.Other, cutoff)
			if c.Want >= cutoff && math.Abs(got-c.Want) > 1e-15 || c.Want < cutoff && got >= cutoff {
				t.Errorf("%q, %q with cutoff %v: got %v, want %v", c.Word, c.Other, cutoff, got, c.Want)
			}
		}
	}
}

func TestTemplateEqualsStrFormat(t *testing.T) {
	for _, c := range readPython(t).Format {
		tmpl, err := ParseTemplate(c.Template)
		switch {
		case err != nil && c.Want != nil:
			t.Errorf("%q: refused (%v), Python gives %q", c.Template, err, *c.Want)
		case err == nil && c.Want == nil:
			t.Errorf("%q: accepted, Python refuses it", c.Template)
		case err == nil:
			if got := tmpl.Format(c.Text, c.Instruction); got != *c.Want {
				t.Errorf("%q with %q, %q: got %q, want %q", c.Template, c.Text, c.Instruction, got, *c.Want)
			}
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for in, want := range map[string]string{
		"{foo}":                    "the template uses {foo}; only {text} and {instruction} may be used",
		"{text!r}":                 "the template uses {text!r}; only {text} and {instruction} may be used",
		"{text:>8}":                "the template uses {text:>8}; only {text} and {instruction} may be used",
		"{0}":                      "the template uses {0}; only {text} and {instruction} may be used",
		"a } b":                    "the template has a single '}'; write '}}' for a brace",
		"a { b":                    "the template has a single '{'; write '{{' for a brace",
		strings.Repeat("x", 1<<15): "the template has 32768 bytes; the limit is 16384",
		"{" + strings.Repeat("y", 200) + "}": "the template uses {" + strings.Repeat("y", 80) +
			"…}; only {text} and {instruction} may be used",
	} {
		if _, err := ParseTemplate(in); err == nil || err.Error() != want {
			t.Errorf("%.40q: got %v, want %s", in, err, want)
		}
	}
}

func TestPrefixTemplate(t *testing.T) {
	for _, prefix := range []string{"", "query: ", "{odd} }{ "} {
		tmpl := PrefixTemplate(prefix)
		if got := tmpl.Format("a{b}", "unused"); got != prefix+"a{b}" {
			t.Errorf("%q: got %q", prefix, got)
		}
		again, err := ParseTemplate(tmpl.String())
		if err != nil || again.Format("t", "") != prefix+"t" {
			t.Errorf("%q: source %q does not read back: %v", prefix, tmpl, err)
		}
	}
}
