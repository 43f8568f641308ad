package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// applyCmd makes sie-config have what a directory says. Running it again changes nothing.
type applyCmd struct {
	remote
	Dir    string `name:"dir" short:"f" help:"Directory of model files." required:"" type:"path"`
	Prune  bool   `help:"Remove added models that the directory has not. Built-in models stay."`
	DryRun bool   `name:"dry-run" help:"Say what would change, and how many workers would reload where a gateway is asked."`
}

// Run applies the directory.
func (c *applyCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return c.apply(ctx, os.Stdout)
}

// apply goes on after a model that is refused, so that one bad file holds up no other; the error
// has all of them.
func (c *applyCmd) apply(ctx context.Context, to io.Writer) error {
	steps, err := c.plan(ctx, c.Dir, c.Prune)
	if err != nil {
		return err
	}
	var failed error
	for _, s := range steps {
		var answer struct {
			Epoch    uint64   `json:"epoch"`
			Workers  *int     `json:"workers_to_reload"`
			Warnings []string `json:"warnings"`
		}
		method, path := "PUT", modelPath(s.id)
		if s.verb == "remove" {
			method = "DELETE"
		}
		if c.DryRun {
			path += "?dry_run=true"
		}
		if err := c.call(ctx, method, path, s.body, &answer); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %s: %w", s.verb, s.id, err))
			continue
		}
		line := fmt.Sprintf("%-8s %s", s.verb, s.id)
		switch {
		case answer.Workers != nil:
			line += fmt.Sprintf(" (%d workers)", *answer.Workers)
		case !c.DryRun:
			line += fmt.Sprintf(" epoch %d", answer.Epoch)
		}
		fmt.Fprintln(to, line)
		for _, w := range answer.Warnings {
			fmt.Fprintln(to, "  "+w)
		}
	}
	if len(steps) == 0 {
		fmt.Fprintln(to, "nothing to change")
	}
	return failed
}

// diffCmd says what apply --prune would change.
type diffCmd struct {
	remote
	Dir string `name:"dir" short:"f" help:"Directory of model files." required:"" type:"path"`
}

// errDiffers is the error of a diff that finds something, for scripts.
var errDiffers = errors.New("sie-config has something else than the directory")

// Run prints the difference.
func (c *diffCmd) Run() error { return c.diff(context.Background(), os.Stdout) }

func (c *diffCmd) diff(ctx context.Context, to io.Writer) error {
	steps, err := c.plan(ctx, c.Dir, true)
	if err != nil {
		return err
	}
	show(to, steps)
	if len(steps) > 0 {
		return errDiffers
	}
	return nil
}
