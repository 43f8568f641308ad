// Command sie-gateway is the entrance of a cluster, and what runs a cluster on one machine.
// `serve` answers HTTP, `nats` is its broker, `dev` runs them all. This package holds flags and
// wiring only.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/internal/build"
	sie "github.com/sie-engine/sie/internal/cli"
)

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Serve the inference routes of a cluster over HTTP."`
	Dev     devCmd     `cmd:"" help:"Run a whole cluster on this machine, and tell it to scale, or a process of it to die."`
	Top     topCmd     `cmd:"" help:"Watch a gateway and its cluster in the terminal; q ends it."`
	DLQ     dlqCmd     `cmd:"" name:"dlq" help:"List, show, replay and drop dead letters: work that ended every server that ran it."`
	Health  sie.Health `cmd:"" help:"Ask a running gateway whether it is ready; the exit status tells."`
	NATS    natsCmd    `cmd:"" name:"nats" help:"Run the broker of a cluster: NATS with JetStream, alone or as one of three."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Printf("sie-gateway %s (%s)\n", build.Version, build.Commit)
	return nil
}

func main() {
	k := newParser(&cli{})
	ctx, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(err)
	if err := sie.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sie-gateway:", err)
		os.Exit(1)
	}
}

// newParser returns the parser that reads a command line into c.
func newParser(c *cli) *kong.Kong {
	return kong.Must(c, kong.Name("sie-gateway"), sie.Paths(), kong.UsageOnError(),
		kong.Description("The entrance of a SIE cluster."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
}
