// Command chart renders, packs and pushes the Helm chart of the repository.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sie-engine/sie/tools/kube/chart"
	"github.com/sie-engine/sie/tools/kube/render"
)

const usage = `usage:
  chart render  [--chart DIR] [-f FILE]… [--set KEY=VALUE]… [--api GROUP/VERSION]… [--all-apis] [--release R] [--namespace N] [--notes]
  chart package [--chart DIR] [--to DIR]          writes NAME-VERSION.tgz and prints its path
  chart push    [--plain-http] FILE oci://REGISTRY/PATH`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// list is a flag that may be there several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	f := flag.NewFlagSet("chart "+args[0], flag.ContinueOnError)
	dir := f.String("chart", "../../deploy/helm/sie-cluster", "folder of the chart")
	switch args[0] {
	case "render":
		return renderTo(f, dir, args[1:])
	case "package":
		to := f.String("to", ".", "folder for the file")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		path, err := chart.Package(*dir, *to)
		if err == nil {
			fmt.Println(path)
		}
		return err
	case "push":
		plain := f.Bool("plain-http", false, "speak HTTP")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		if f.NArg() != 2 {
			return errors.New(usage)
		}
		ref, err := chart.Push(f.Arg(0), f.Arg(1), *plain, os.Stderr)
		if err == nil {
			fmt.Println(ref)
		}
		return err
	}
	return errors.New(usage)
}

func renderTo(f *flag.FlagSet, dir *string, args []string) error {
	var o render.Options
	f.Var((*list)(&o.Values), "f", "values file")
	f.Var((*list)(&o.Set), "set", "key=value")
	f.Var((*list)(&o.APIs), "api", "API of the cluster beside Kubernetes' own")
	all := f.Bool("all-apis", false, "KEDA's, the Prometheus operator's and the Gateway API")
	f.StringVar(&o.Release, "release", "sie-cluster", "name of the release")
	f.StringVar(&o.Namespace, "namespace", "sie", "its namespace")
	f.StringVar(&o.KubeVersion, "kube-version", "", "as v1.36.0")
	withNotes := f.Bool("notes", false, "the notes too")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *all {
		o.APIs = append(o.APIs, render.AllAPIs...)
	}
	docs, notes, err := render.Chart(*dir, o)
	if err != nil {
		return err
	}
	for _, d := range docs {
		fmt.Printf("---\n# Source: %s\n%s\n", d.Source, strings.TrimSpace(string(d.Raw)))
	}
	if *withNotes {
		fmt.Fprintln(os.Stderr, notes)
	}
	return nil
}
