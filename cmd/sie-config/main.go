// Command sie-config has the configuration of a cluster: `serve` tells gateways and workers which
// models and bundles there are, `apply`, `diff` and `status` change it and look at it. This package
// holds flags and wiring only.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/internal/build"
	sie "github.com/sie-engine/sie/internal/cli"
)

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Serve the configuration of a cluster over HTTP."`
	Apply   applyCmd   `cmd:"" help:"Make sie-config have the models of a directory."`
	Diff    diffCmd    `cmd:"" help:"Say in what sie-config differs from a directory of models; exit status 1 if it does, 2 if that cannot be told."`
	Status  statusCmd  `cmd:"" help:"Say which workers have models as sie-config has them."`
	Health  sie.Health `cmd:"" help:"Ask a running sie-config whether it is ready; the exit status tells."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Printf("sie-config %s (%s)\n", build.Version, build.Commit)
	return nil
}

func main() {
	k := newParser(&cli{})
	ctx, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(err)
	if err := sie.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sie-config:", err)
		os.Exit(status(ctx.Command(), err))
	}
}

// status returns the exit status of a command that ended with an error. That of diff is diff's.
func status(command string, err error) int {
	if command == "diff" && !errors.Is(err, errDiffers) {
		return 2
	}
	return 1
}

// newParser returns the parser that reads a command line into c. -h is the host, as in the
// reference; help is --help.
func newParser(c *cli) *kong.Kong {
	return kong.Must(c, kong.Name("sie-config"), sie.Paths(), kong.UsageOnError(),
		kong.Description("The configuration of a SIE cluster."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.PostBuild(func(k *kong.Kong) error { k.Model.HelpFlag.Short = 0; return nil }))
}
