package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	sie "github.com/sie-engine/sie/internal/cli"
)

// commands returns every command with flags.
func commands(n *kong.Node) (all []*kong.Node) {
	all = append(all, n)
	for _, c := range n.Children {
		all = append(all, commands(c)...)
	}
	return all
}

// Every flag that is a number or a duration says which values it takes, and its default is one.
func TestEveryNumberHasARange(t *testing.T) {
	seen := 0
	for _, n := range commands(newParser(&cli{}).Model.Node) {
		for _, f := range n.Flags {
			if !sie.Numeric(f.Target.Type()) {
				continue
			}
			seen++
			if _, err := sie.ParseBounds(f.Tag.Get("range"), f.Target.Type()); err != nil {
				t.Errorf("%s --%s: %v", n.FullPath(), f.Name, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d flags are numbers; is this every command?", seen)
	}
}

// parse runs the checks of a command line, and not the command.
func parse(t *testing.T, line string) (*cli, error) {
	t.Helper()
	c := &cli{}
	k, err := newParser(c).Parse(strings.Fields(line))
	if err != nil {
		return c, err
	}
	if err := sie.CheckRanges(k); err != nil {
		return c, err
	}
	if c, ok := k.Selected().Target.Addr().Interface().(sie.Checker); ok {
		err = c.Check()
	}
	return c, err
}

func TestBadFlagsAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"nats --store-dir x --port 70000":        "--port must be between 0 and 65535",
		"nats --port 1":                          "missing flags: --store-dir",
		"nats --store-dir x --max-payload 1":     "--max-payload must be between",
		"nats --config x --store-dir y":          "--config says all",
		"nats --store-dir x --passwords y":       "--passwords are those of --config",
		"dev --workers 65":                       "--workers must be between 0 and 64",
		"dev start --gateways 0":                 "--gateways must be between 1 and 8",
		"dev --port 65500":                       "--port must be between",
		"dev --nats-nodes 4":                     "--nats-nodes must be between 1 and 3",
		"dev --storage disk":                     "--storage must be one of",
		"dev --lanes default/cpu":                `--lanes "default/cpu" is no lane`,
		"dev --lanes default/cpu/default,a/b/*c": "'*'",
		"dev kill":                               "expected \"<role>\"",
		"dev kill everything":                    `"everything" names no process`,
		"dev stop server/x":                      "write a number from 0",
		"dev scale many":                         "expected a valid 64 bit int",
	} {
		if _, err := parse(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// `dev` alone starts a cluster, with what follows as its flags.
func TestDevStarts(t *testing.T) {
	c, err := parse(t, "dev --port 9000 --workers 3 --lanes a/b/c,d/e/f --no-restart --model m1 --model m2")
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Dev.Start.options()
	if err != nil || o.Port != 9000 || o.Workers != 3 || o.Restart || len(o.Lanes) != 2 ||
		o.Lanes[1].Profile != "e" || !reflect.DeepEqual(o.Models, []string{"m1", "m2"}) || o.StateDir == "" {
		t.Errorf("%+v %v", o, err)
	}
}
