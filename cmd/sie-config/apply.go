package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
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

// statusCmd says which workers have a model as sie-config has it.
type statusCmd struct {
	remote
	Gateway string        `help:"Address of a gateway, which knows the workers." env:"SIE_GATEWAY_URL" default:"http://127.0.0.1:8080"`
	Key     string        `help:"API key of the gateway." env:"SIE_API_KEY"`
	Models  []string      `arg:"" help:"Ids of models."`
	Wait    bool          `help:"Wait until the gateway has the epoch of sie-config and every worker has the models."`
	Timeout time.Duration `help:"Longest time to wait." default:"5m" range:"0s..24h"`
}

// statusEvery is how often a waiting status asks.
const statusEvery = 500 * time.Millisecond

// Run prints the status of each model.
func (c *statusCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return c.status(ctx, os.Stdout, statusEvery)
}

// status asks until all is done, or once.
func (c *statusCmd) status(ctx context.Context, to io.Writer, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		lines, done, err := c.look(ctx)
		if err == nil && (done || !c.Wait) {
			for _, l := range lines {
				fmt.Fprintln(to, l)
			}
			return nil
		}
		if err != nil && !c.Wait {
			return err
		}
		select {
		case <-ctx.Done():
			for _, l := range lines {
				fmt.Fprintln(to, l)
			}
			return errors.Join(errors.New("not every worker has the models yet"), err)
		case <-time.After(every):
		}
	}
}

// look asks once. done says that the gateway has the epoch and all workers have all models.
func (c *statusCmd) look(ctx context.Context) (lines []string, done bool, err error) {
	var now struct{ Epoch uint64 }
	if err := c.call(ctx, "GET", "/v1/configs/epoch", nil, &now); err != nil {
		return nil, false, err
	}
	gateway := remote{URL: c.Gateway, Token: c.Key}
	done = true
	for _, id := range c.Models {
		var s struct {
			Epoch   uint64 `json:"config_epoch"`
			All     bool   `json:"all_bundles_acked"`
			Bundles []struct {
				Bundle  string   `json:"bundle_id"`
				Acked   []string `json:"acked_workers"`
				Pending []string `json:"pending_workers"`
			} `json:"bundles"`
		}
		if err := gateway.call(ctx, "GET", modelPath(id)+"/status", nil, &s); err != nil {
			return lines, false, fmt.Errorf("%s: %w", id, err)
		}
		done = done && s.All && s.Epoch >= now.Epoch
		for _, b := range s.Bundles {
			lines = append(lines, fmt.Sprintf("%s %s: %d workers have it, %d do not (epoch %d of %d)", id,
				b.Bundle, len(b.Acked), len(b.Pending), s.Epoch, now.Epoch))
		}
	}
	return lines, done, nil
}
