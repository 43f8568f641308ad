package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sie-engine/sie/tools/chaos/row"
	"github.com/sie-engine/sie/tools/chaos/without"
)

type withoutCmd struct {
	Fixes []string `help:"Words with which the names of fixes begin; all where none is given." sep:" "`
	List  bool     `help:"Name the fixes and their judges, and run nothing."`
	Top   string   `help:"Top of the source tree." default:"." type:"path"`
	Bin   string   `help:"Folder of the programs; its sie-server is used." default:"bin" type:"path"`
	Venv  string   `help:"Python environment of the SDKs." default:"build/venv-clients" type:"path"`
	// NoSDKs is for a machine without the SDKs.
	NoSDKs  bool   `name:"no-sdks" help:"Rows with raw clients only."`
	Dir     string `help:"Folder for builds and logs; a new temporary one where none is given. It is kept when a judge is not red." type:"path"`
	Results string `help:"File for the table, in Markdown." type:"path"`
}

// errNotRed says that a fix was left out and its judge noticed nothing.
var errNotRed = errors.New("a fix can be left out")

// Run leaves the fixes out, one after another.
func (c *withoutCmd) Run() (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	fixes, err := without.Select(without.Fixes(), c.Fixes)
	if err != nil {
		return err
	}
	if c.List {
		for _, f := range fixes {
			fmt.Printf("%-24s %s\n%24s %s\n", f.Name, f.What, "", strings.Join(f.Judges(), ", "))
		}
		return nil
	}
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "sie-without-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.Dir, "without.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var list []without.Verdict
	b := without.Bench{Top: c.Top, Dir: c.Dir, Bin: c.Bin, Log: log,
		Row: func(ctx context.Context, programs, name string) ([]string, error) {
			return c.row(ctx, log, programs, name)
		},
		Told: func(v without.Verdict) {
			list = append(list, v)
			fmt.Println(v.String())
		},
	}
	begin := time.Now()
	green, err := b.Run(ctx, fixes)
	if c.Results != "" && ctx.Err() == nil {
		f, createErr := os.Create(c.Results)
		if createErr != nil {
			return errors.Join(err, createErr)
		}
		err = errors.Join(err, without.Markdown(f, list), f.Close())
	}
	if err == nil && green > 0 {
		err = fmt.Errorf("%w: %d of %d judges are not red", errNotRed, green, len(list))
	}
	if err != nil {
		return fmt.Errorf("%w; the log is in %s", err, c.Dir)
	}
	fmt.Printf("%d fixes, %d judges: each is red without its fix; %.0f s\n", len(fixes), len(list),
		time.Since(begin).Seconds())
	return os.RemoveAll(c.Dir)
}

// row runs one row with the programs of a folder.
func (c *withoutCmd) row(
	ctx context.Context, log *os.File, programs, name string,
) (broken []string, err error) {
	rows, err := row.Select(row.Table(), []string{name}, false)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("%q names %d rows", name, len(rows))
	}
	config := row.Config{Binary: filepath.Join(programs, "sie-gateway"), Dir: filepath.Join(programs, "run"),
		Venv: c.Venv, Log: log, Known: known{}, Models: models}
	if c.NoSDKs {
		config.Venv = ""
	}
	s, err := row.Up(ctx, config, rows[0].Topology)
	if err != nil {
		return nil, err
	}
	l := s.Run(ctx, &rows[0])
	fmt.Fprintln(log, l.String())
	if err := s.Down(); err != nil { // what the row broke may not end well
		fmt.Fprintln(log, err)
	}
	if l.NotRun != "" {
		return nil, errors.New(l.NotRun)
	}
	return l.Broken, ctx.Err()
}
