// Package clitest compares the flags of a program with the list of them in deploy/options, which
// the checks of the manifests read, and has its parser read empty paths. Options is its only
// function; `go test -run Options -update-options` writes the lists.
package clitest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update-options", false, "write deploy/options anew")

// Options compares the flags of k, which is of a package in cmd, with the file of the program's
// name: a line for each flag of each command, as "serve --port SIE_PORT,PORT"; "-" stands for a
// program without commands. Hidden flags are there too.
func Options(t *testing.T, k *kong.Kong) {
	t.Helper()
	emptyPaths(t, k.Model.Node)
	path := filepath.Join("..", "..", "deploy", "options", k.Model.Name+".txt")
	var b strings.Builder
	list(&b, k.Model.Node, "")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Errorf("%s has not the flags of %s: go test ./cmd/%s -run Options -update-options, and then either a value in "+
			"the chart or a reason in deploy/options/reasons.yaml for what is new", path, k.Model.Name, k.Model.Name)
	}
}

// list writes the flags of a node and of those below it.
func list(b *strings.Builder, n *kong.Node, command string) {
	for _, f := range n.Flags {
		if f.Name == "help" {
			continue
		}
		line := fmt.Sprintf("%s --%s %s", orDash(command), f.Name, strings.Join(f.Envs, ","))
		fmt.Fprintln(b, strings.TrimSpace(line))
	}
	for _, c := range n.Children {
		list(b, c, strings.TrimSpace(command+" "+c.Name))
	}
}

func orDash(command string) string {
	if command == "" {
		return "-"
	}
	return strings.ReplaceAll(command, " ", "/")
}

// emptyPaths has every flag of a node and of those below it that takes a path read an empty one.
func emptyPaths(t *testing.T, n *kong.Node) {
	t.Helper()
	for _, f := range n.Flags {
		if f.Tag.Type != "path" && f.Tag.Type != "existingdir" {
			continue
		}
		path := reflect.New(f.Target.Type()).Elem()
		empty := kong.ScanFromTokens(kong.Token{Value: "", Type: kong.FlagValueToken})
		if err := f.Parse(empty, path); err != nil || path.String() != "" {
			t.Errorf("an empty --%s is %q, %v: the parser needs the option Paths", f.Name, path, err)
		}
	}
	for _, c := range n.Children {
		emptyPaths(t, c)
	}
}
