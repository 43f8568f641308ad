package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type cli struct {
	Files   []string `arg:"" optional:"" help:"Files of runtime/arch, as gemma.go; all where none is given."`
	Jobs    int      `help:"Programs at once; the number of cores by default."`
	Verbose bool     `short:"v" help:"Say of each mutant what a test said."`
}

// Run judges mutants.
func (c *cli) Run(ctx context.Context) error {
	all, err := lists()
	if err != nil {
		return err
	}
	chosen := all
	if len(c.Files) > 0 {
		chosen = nil
		for _, m := range all {
			if slices.Contains(c.Files, m.file) {
				chosen = append(chosen, m)
			}
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no list has a mutant of %s", strings.Join(c.Files, ", "))
	}
	return judgeAll(ctx, all, chosen, c.Jobs, c.Verbose)
}

// lists reads the lists, and refuses them where a file that needs one has none.
func lists() ([]*mutant, error) {
	all, err := readLists(filepath.Join("tools", "mutate", "arch"))
	if err != nil {
		return nil, err
	}
	missing, err := unlisted(".", all)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no list of tools/mutate/arch has a mutant of %s", strings.Join(missing, ", "))
	}
	return all, nil
}

// judgeAll builds the program of all mutants and judges the chosen ones. It prints those that live,
// verbose all of them, and fails where one does.
func judgeAll(ctx context.Context, all, chosen []*mutant, jobs int, verbose bool) error {
	if jobs < 1 {
		jobs = runtime.NumCPU()
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := build(ctx, root, filepath.Join(root, "build", "mutate-go"), all)
	if err != nil {
		return err
	}
	built := time.Now()
	if err := p.tryTests(ctx, chosen); err != nil {
		return err
	}
	tried := time.Now()
	live, err := p.judge(ctx, chosen, jobs, func(m *mutant, v verdict) {
		if verbose {
			fmt.Printf("%s: %s, %.1f s\n", m.id(), v.by, v.seconds)
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("mutate: %d of the %d mutants of %s judged, %d live; %.0f s of building, "+
		"%.0f s of tests without a mutant, %.0f s of judging\n", len(chosen), len(all), target, len(live),
		built.Sub(begin).Seconds(), tried.Sub(built).Seconds(), time.Since(tried).Seconds())
	for _, m := range live {
		fmt.Printf("lives: %s (%s:%d, %s)\n", m.id(), m.list, m.line, m.tests)
	}
	if len(live) > 0 {
		return errors.New("no test notices a fault")
	}
	return nil
}

func main() {
	var c cli
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	k := kong.Parse(&c, kong.Name("golists"), kong.BindTo(ctx, (*context.Context)(nil)))
	k.FatalIfErrorf(k.Run())
}
