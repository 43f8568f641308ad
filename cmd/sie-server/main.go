// Command sie-server is the inference server. `serve` answers HTTP; `encode` turns texts into
// vectors without a server; `models`, `pull` and `doctor` show which models and devices it has, and
// why. This package holds flags and wiring only.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/internal/build"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/pages"
)

type cli struct {
	Serve   serveCmd      `cmd:"" help:"Serve models over HTTP."`
	Encode  encodeCmd     `cmd:"" help:"Turn texts into vectors, without a server."`
	Models  modelsCmd     `cmd:"" help:"List the models of the catalog and whether their weights are here."`
	Pull    pullCmd       `cmd:"" help:"Download a model's weights into the local cache."`
	Check   checkModelCmd `cmd:"" name:"check-model" help:"Say what a model holds and whether it can be served, from its headers; with --compare, whether it gives the recorded numbers."`
	Doctor  doctorCmd     `cmd:"" help:"Explain what this machine offers and what would be used."`
	Top     topCmd        `cmd:"" help:"Watch a running server in the terminal; q ends it."`
	Health  sie.Health    `cmd:"" help:"Ask a running server whether it is ready; the exit status tells."`
	OpenAPI openapiCmd    `cmd:"" name:"openapi" help:"Print the OpenAPI document."`
	Version versionCmd    `cmd:"" help:"Print the version."`
	Race    raceCmd       `cmd:"" hidden:"" help:"The library path of the benchmark."`
}

type openapiCmd struct {
	Output string `help:"File to write instead of standard output." short:"o" type:"path"`
}

func (c *openapiCmd) Run() error {
	if c.Output == "" {
		_, err := os.Stdout.Write(pages.Document())
		return err
	}
	return os.WriteFile(c.Output, pages.Document(), 0o644)
}

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Printf("sie-server %s (%s)\n", build.Version, build.Commit)
	return nil
}

func main() {
	k := newParser(&cli{})
	ctx, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(err)
	if err := sie.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sie-server:", err)
		os.Exit(1)
	}
}

// newParser returns the parser that reads a command line into c.
func newParser(c *cli) *kong.Kong {
	return kong.Must(c, kong.Name("sie-server"), sie.Paths(), kong.UsageOnError(),
		kong.Vars{"model": defaultModel}, kong.Description("A self-hosted inference engine for embeddings."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
}
