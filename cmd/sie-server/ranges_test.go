package main

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	sie "github.com/sie-engine/sie/internal/cli"
)

// commands returns all commands of the binary, hidden ones included.
func commands(t *testing.T) []*kong.Node {
	t.Helper()
	list := newParser(&cli{}).Model.Leaves(false)
	if len(list) < 10 {
		t.Fatalf("there are only %d commands", len(list))
	}
	return list
}

func TestEveryNumberHasARange(t *testing.T) {
	seen := 0
	for _, command := range commands(t) {
		for _, group := range command.AllFlags(false) {
			for _, f := range group {
				tag := f.Tag.Get("range")
				if !sie.Numeric(f.Target.Type()) {
					if tag != "" {
						t.Errorf("%s --%s is no number and has a range", command.Name, f.Name)
					}
					continue
				}
				seen++
				b, err := sie.ParseBounds(tag, f.Target.Type())
				if err != nil {
					t.Errorf("%s --%s: add range:\"least..most\" to its tag: %v", command.Name, f.Name, err)
				} else if b.Has(math.NaN()) || b.Has(math.Inf(1)) || b.Has(math.Inf(-1)) ||
					b.Has(-1) && b.Min != -1 {
					t.Errorf("%s --%s takes anything", command.Name, f.Name)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("there are only %d numbers among the flags", seen)
	}
}

// Arguments of commands have no ranges, so none of them may be a number.
func TestNoArgumentIsANumber(t *testing.T) {
	for _, command := range commands(t) {
		for _, a := range command.Positional {
			if sie.Numeric(a.Target.Type()) {
				t.Errorf("%s %s is a number without a range", command.Name, a.Name)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	number, duration := reflect.TypeFor[int](), reflect.TypeFor[time.Duration]()
	for _, c := range []struct {
		tag     string
		of      reflect.Type
		in, out []float64
		text    string
	}{
		{"1..64", number, []float64{1, 2, 64}, []float64{0, -1, 65, 0.99, math.NaN(), math.Inf(1)},
			"between 1 and 64"},
		{"0|10..86400", number, []float64{0, 10, 86400}, []float64{-1, 1, 9, 86401},
			"0 or between 10 and 86400"},
		{"1ms..1h", duration, []float64{1e6, 3600e9}, []float64{0, 999_999, 3600e9 + 1e3, -1e6},
			"between 1ms and 1h"},
		{"0s..24h", duration, []float64{0, 1}, []float64{-1}, "between 0s and 24h"},
	} {
		b, err := sie.ParseBounds(c.tag, c.of)
		if err != nil || b.Text != c.text {
			t.Errorf("%s: %+v, %v", c.tag, b, err)
		}
		if slices.ContainsFunc(c.in, func(x float64) bool { return !b.Has(x) }) ||
			slices.ContainsFunc(c.out, b.Has) {
			t.Errorf("%s takes what it should not, or the other way round", c.tag)
		}
	}
	for _, bad := range []string{"", "1", "a..b", "1..b", "x|1..2", "1s..2s", "5..1"} {
		if _, err := sie.ParseBounds(bad, number); err == nil {
			t.Errorf("%q is a range", bad)
		}
	}
}

// checked returns the problems of a command line.
func checked(t *testing.T, args ...string) string {
	t.Helper()
	k, err := newParser(&cli{}).Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := sie.CheckRanges(k); err != nil {
		return err.Error()
	}
	return ""
}

func TestRangesAreChecked(t *testing.T) {
	if got := checked(t, "serve"); got != "" {
		t.Errorf("the defaults are out of range: %s", got)
	}
	for _, name := range []string{"health", "top", "doctor", "models", "version", "openapi"} {
		if got := checked(t, name); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	got := checked(t, "serve", "--request-timeout=-1s", "--max-conns=-1", "--max-batch-wait-ms=NaN",
		"--max-head-bytes=9223372036854775807", "--port=70000")
	for _, want := range []string{
		"--request-timeout must be between 1ms and 24h; got -1s",
		"--max-conns must be between 1 and 1048576; got -1",
		"--max-batch-wait-ms must be between 0 and 10000; got NaN",
		"--max-head-bytes must be between 1024 and 1048576; got 9223372036854775807", "--port must be",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if n := strings.Count(got, "\n"); n != 4 {
		t.Errorf("%d lines besides the first: %s", n, got)
	}
	t.Setenv("SIE_MAX_CONNS", "0")
	if got := checked(t,
		"serve"); got != "--max-conns must be between 1 and 1048576; got 0 from SIE_MAX_CONNS" {
		t.Error(got)
	}
	if got := checked(t, "serve",
		"--max-conns=0"); got != "--max-conns must be between 1 and 1048576; got 0" {
		t.Error(got)
	}
	if got := checked(t, "serve", "--max-conns=1"); got != "" {
		t.Error(got)
	}
}

// All problems of a command line are reported at once, whatever their kind.
func TestAllProblemsAtOnce(t *testing.T) {
	k, err := newParser(&cli{}).Parse([]string{
		"serve", "--port=-1", "--load-wait=-1s", "--tls-cert=none", "--cors-origin=a,b", "--api-key=",
	})
	if err != nil {
		t.Fatal(err)
	}
	err = sie.Run(k)
	for _, want := range []string{
		"--port", "--load-wait", "--tls-key", `"a" is no origin`, `"b" is no origin`, "API key 1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
}
