package main

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/bus"
	sie "github.com/sie-engine/sie/internal/cli"
)

// A variable of NATS that is empty gives nothing: it names no file, and not the working directory.
func TestEmptyVariablesOfNATS(t *testing.T) {
	for _, v := range (&bus.Access{}).Environ() {
		name, _, _ := strings.Cut(v, "=")
		t.Setenv(name, "")
	}
	c := cli{}
	_, err := newParser(&c).Parse([]string{
		"--nats-url=nats://127.0.0.1:1", "--pool=p", "--bundle=b", "--machine-profile=c",
	})
	if err != nil || c.Access != (bus.Access{}) {
		t.Errorf("%v %+v", err, c.Access)
	}
}

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
