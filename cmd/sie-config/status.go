package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// statusCmd says which workers have a model as sie-config has it.
type statusCmd struct {
	remote
	Gateway string        `help:"Address of a gateway, which knows the workers." env:"SIE_GATEWAY_URL" default:"http://127.0.0.1:8080"`
	Key     string        `help:"API key of the gateway." env:"SIE_API_KEY"`
	Models  []string      `arg:"" help:"Ids of models."`
	Wait    bool          `help:"Wait until the gateway has the epoch of sie-config and every worker has the models; exit status 1 if that takes too long."`
	Timeout time.Duration `help:"Longest time to wait." default:"5m" range:"0s..24h"`
}

// statusEvery is how often a waiting status asks.
const statusEvery = 500 * time.Millisecond

// Run prints the status of each model.
func (c *statusCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return c.status(ctx, os.Stdout, os.Stderr, statusEvery)
}

// status asks until all is done, or once. While it waits, progress gets what has changed.
func (c *statusCmd) status(ctx context.Context, to, progress io.Writer, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	before := ""
	var last error
	for {
		lines, done, err := c.look(ctx)
		if c.Wait && ctx.Err() != nil { // the question was cut off: what was known before says more
			return errors.Join(fmt.Errorf("not every worker has the models after %v", c.Timeout), last)
		}
		last = err
		if err != nil && (!c.Wait || final(err)) {
			return err
		}
		text := strings.Join(lines, "")
		if err == nil && (done || !c.Wait) {
			_, err = io.WriteString(to, text)
			return err
		}
		if err != nil {
			text = err.Error() + "\n"
		}
		if ctx.Err() == nil && text != before {
			before = text
			fmt.Fprint(progress, "waiting: ", text)
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not every worker has the models after %v", c.Timeout), err)
		case <-time.After(every):
		}
	}
}

// unknownError says that sie-config has no model of an id.
type unknownError struct{ id string }

func (e *unknownError) Error() string { return fmt.Sprintf("sie-config has no model %q", e.id) }

// final reports whether waiting changes nothing about an error.
func final(err error) bool {
	var unknown *unknownError
	var answered *statusError
	return errors.Is(err, errAddress) || errors.As(err, &unknown) ||
		errors.As(err, &answered) && answered.status < 500 && answered.status != http.StatusNotFound &&
			answered.status != http.StatusTooManyRequests
}

// modelStatus is what a gateway says of a model.
type modelStatus struct {
	Epoch   uint64 `json:"config_epoch"`
	All     bool   `json:"all_bundles_acked"`
	Bundles []struct {
		Bundle  string   `json:"bundle_id"`
		Acked   []string `json:"acked_workers"`
		Pending []string `json:"pending_workers"`
	} `json:"bundles"`
}

// look asks once. done says that the gateway has the epoch and all workers have all models.
func (c *statusCmd) look(ctx context.Context) (lines []string, done bool, err error) {
	var now struct{ Epoch uint64 }
	if err := c.call(ctx, "GET", "/v1/configs/epoch", nil, &now); err != nil {
		return nil, false, err
	}
	gateway := remote{URL: c.Gateway, Token: c.Key, gateway: true}
	done = true
	for _, id := range c.Models {
		var s modelStatus
		err := gateway.call(ctx, "GET", modelPath(id)+"/status", nil, &s)
		var answered *statusError
		if errors.As(err, &answered) && answered.status == http.StatusNotFound {
			err = c.missing(ctx, id, err)
		}
		if err != nil {
			return lines, false, fmt.Errorf("%s: %w", id, err)
		}
		done = done && s.All && s.Epoch >= now.Epoch
		for _, b := range s.Bundles {
			lines = append(lines, fmt.Sprintf("%s %s: %d workers have it, %d do not%s (epoch %d of %d)\n", id,
				b.Bundle, len(b.Acked), len(b.Pending), some(b.Pending), s.Epoch, now.Epoch))
		}
	}
	return lines, done, nil
}

// missing returns an error about a model that the gateway does not know, which waiting may change
// where sie-config has it.
func (c *statusCmd) missing(ctx context.Context, id string, err error) error {
	var export struct {
		Models []struct {
			ID string `json:"model_id"`
		} `json:"models"`
	}
	if c.call(ctx, "GET", "/v1/configs/export", nil, &export) != nil {
		return err
	}
	base := id
	if i := strings.LastIndexByte(id, ':'); i >= 0 {
		base = id[:i]
	}
	for _, m := range export.Models {
		if m.ID == id || m.ID == base {
			return fmt.Errorf("the gateway has not read it from sie-config yet: %w", err)
		}
	}
	return &unknownError{id}
}

// maxNames bounds the workers that a line names.
const maxNames = 5

// some names the first of the workers in brackets.
func some(workers []string) string {
	if len(workers) == 0 {
		return ""
	}
	names := slices.Sorted(slices.Values(workers))
	if len(names) > maxNames {
		names = append(names[:maxNames:maxNames], "…")
	}
	return " [" + strings.Join(names, " ") + "]"
}
