package main

import (
	"testing"

	sie "github.com/sie-engine/sie/internal/cli"
)

// Every number of the command line has a range that can be read.
func TestEveryNumberHasARange(t *testing.T) {
	seen := 0
	for _, f := range newParser(&cli{}).Model.AllFlags(false)[0] {
		if !sie.Numeric(f.Target.Type()) {
			continue
		}
		seen++
		if _, err := sie.ParseBounds(f.Tag.Get("range"), f.Target.Type()); err != nil {
			t.Errorf("--%s: %v", f.Name, err)
		}
	}
	if seen < 6 {
		t.Errorf("%d numbers were found", seen)
	}
}

// A lane that is missing is named, and one that is no token of a subject too.
func TestLaneIsRequired(t *testing.T) {
	for _, args := range [][]string{
		{"--nats-url=x", "--bundle=b", "--machine-profile=c"},
		{"--pool=p", "--bundle=b", "--machine-profile=c"},
		{"--nats-url=x", "--pool=p", "--machine-profile=c"}, {"--nats-url=x", "--pool=p", "--bundle=b"},
	} {
		if _, err := newParser(&cli{}).Parse(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	c := cli{}
	_, err := newParser(&c).Parse([]string{
		"--nats-url=nats://127.0.0.1:1", "--pool=a.b", "--bundle=b", "--machine-profile=c", "--probe-port=0",
		"--probe-host=127.0.0.1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.run(t.Context()); err == nil {
		t.Error("pool a.b was accepted")
	}
}
