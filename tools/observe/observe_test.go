package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/deploy/deploytest"
)

// Every alert is caused here, or listed with a reason and tested by numbers; nothing else is.
func TestEveryAlertIsCausedOrListed(t *testing.T) {
	rules, err := deploytest.Rules()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rules {
		names = append(names, r.Alert)
	}
	if err := eachOnce(names); err != nil {
		t.Error(err)
	}
	for i, name := range names {
		others := slices.Delete(slices.Clone(names), i, i+1)
		if err := eachOnce(others); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if err := eachOnce(append(names, "SIENew")); err == nil {
		t.Error("an alert without a cause passes")
	}
	if _, err := writeUncaused(t.TempDir(), "rules.yaml"); err != nil {
		t.Error(err)
	}
}

// Times get shorter, and nothing else changes.
func TestShorten(t *testing.T) {
	const text = `
      - alert: A
        expr: sum(rate(a[5m])) + increase(b[10m]) > on(c) d[1m]
        for: 10m
      - alert: B
        for: 1m
      - {for: 2m}
`
	const want = `
      - alert: A
        expr: sum(rate(a[15s])) + increase(b[30s]) > on(c) d[10s]
        for: 10s
      - alert: B
        for: 1s
      - {for: 2m}
`
	if got := shorten(text); got != want {
		t.Errorf("%s", got)
	}
}
