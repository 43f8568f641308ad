package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/deploy/deploytest"
	"github.com/sie-engine/sie/tools/chaos/rig"
)

type cli struct {
	Run  runCmd      `cmd:"" default:"withargs" help:"Check everything."`
	Node rig.NodeCmd `cmd:"" name:"nats-node" hidden:"" help:"A NATS server, for run."`
}

type runCmd struct {
	Bin    string   `help:"Folder of the programs." default:"bin" type:"path"`
	Dir    string   `help:"Folder for state and logs; a new temporary one where none is given. It is kept when something is wrong." type:"path"`
	Alerts []string `help:"Alerts to cause; all where none is given, and only then are all expressions demanded." sep:","`
}

// Run checks the files, causes every alert, and asks every expression.
func (c *runCmd) Run() (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "sie-observe-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	begun := time.Now()
	if err := checkFiles(ctx, c.Dir); err != nil {
		return err
	}
	h, err := start(ctx, c.Bin, c.Dir)
	if err != nil {
		return fmt.Errorf("%w; logs are in %s", err, c.Dir)
	}
	wrong := h.causeAll(ctx, c.Alerts)
	if len(c.Alerts) == 0 && ctx.Err() == nil {
		if err := h.scaleDown(ctx); err != nil {
			wrong = append(wrong, fmt.Errorf("scale-down: %w", err))
		}
		wrong = append(wrong, h.askAll(ctx)...)
	}
	if err := h.stop(); err != nil {
		wrong = append(wrong, err)
	}
	for _, err := range wrong {
		fmt.Println("WRONG:", err)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d things are wrong; logs are in %s", len(wrong), c.Dir)
	}
	fmt.Printf("everything is observed; %.0f s\n", time.Since(begun).Seconds())
	return os.RemoveAll(c.Dir)
}

// checkFiles has promtool check the rules and test those that nothing here can cause, and demands
// that each alert is caused or tested.
func checkFiles(ctx context.Context, dir string) error {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: tools/setup/deps.sh observe installs it", err)
		}
	}
	rules, err := deploytest.Rules()
	if err != nil {
		return err
	}
	var all []string
	for _, r := range rules {
		all = append(all, r.Alert)
	}
	if err := eachOnce(all); err != nil {
		return err
	}
	path, err := writeRules(dir, "rules.yaml", func(text string) string { return text })
	if err != nil {
		return err
	}
	test, err := writeUncaused(dir, path)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"check", "rules", path}, {"test", "rules", test}} {
		out, err := exec.CommandContext(ctx, "promtool", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	fmt.Printf("promtool: %d alerts are well formed; %d that nothing here can cause are tested by numbers\n",
		len(rules), len(uncaused))
	return nil
}

// eachOnce demands that each alert is caused or listed as beyond that, and that nothing else is.
func eachOnce(alerts []string) error {
	for _, name := range alerts {
		caused := slices.ContainsFunc(causes, func(c cause) bool { return c.alert == name })
		if _, listed := uncaused[name]; caused == listed {
			return fmt.Errorf("alert %s: it is caused (%v) or listed as beyond that (%v), and not both",
				name, caused, listed)
		}
	}
	for _, c := range causes {
		if !slices.Contains(alerts, c.alert) {
			return fmt.Errorf("%s is caused, and there is no such alert", c.alert)
		}
	}
	for name := range uncaused {
		if !slices.Contains(alerts, name) {
			return fmt.Errorf("%s is listed, and there is no such alert", name)
		}
	}
	return nil
}

func main() {
	var c cli
	k := kong.Must(&c, kong.Name("observe"), kong.Description("Proves that alerts, dashboards and triggers "+
		"see something."), kong.UsageOnError())
	parsed, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(err)
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}
