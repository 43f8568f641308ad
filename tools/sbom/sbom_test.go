package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// built builds sie-config, as `make pure` does, from the tree's Go files or from a copy of them,
// and returns the program.
func built(from string) ([]byte, error) {
	to, err := os.MkdirTemp("", "sbom")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(to)
	c := exec.Command("go", "build", "-tags", "disable_grpc_modules,netgo,osusergo", "-trimpath",
		"-buildvcs=false", "-ldflags", "-X github.com/sie-engine/sie/internal/build.Commit=0123456789ab",
		"-o", to, "./cmd/sie-config")
	c.Dir = from
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(to, "sie-config"))
}

// builtHere builds this tree's sie-config once for all tests: to link it takes seconds.
var builtHere = sync.OnceValues(func() ([]byte, error) { return built("../..") })

// The bill of a program has the modules that its packages come from, with their versions, and a
// licence of each.
func TestBillMatchesTheModules(t *testing.T) {
	here, err := builtHere()
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	program := filepath.Join(to, "sie-config")
	if err := os.WriteFile(program, here, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(to, "", "0123456789ab", []string{program}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, c := range b.Components {
		if c.Name != "std" {
			has = append(has, c.Name+" "+c.Version)
		}
		if c.PURL == "" || c.Licences[0].Expression == "" || c.Type != "library" {
			t.Errorf("%+v", c)
		}
	}
	list := exec.Command("go", "list", "-tags", "disable_grpc_modules,netgo,osusergo", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/sie-config")
	list.Dir = "../.."
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
	slices.Sort(want)
	want = slices.Compact(want)
	slices.Sort(has)
	if !slices.Equal(has, want) || len(want) < 10 {
		t.Errorf("the bill has %v\ngo list has %v", has, want)
	}
	if b.Metadata.Component.Version != "0123456789ab" || b.Spec != "1.6" ||
		!strings.HasPrefix(b.Serial, "urn:uuid:") {
		t.Errorf("%+v", b.Metadata)
	}
	licences, err := os.ReadFile(program + ".licenses.txt")
	if err != nil || !strings.Contains(string(licences), "github.com/nats-io/nats.go") ||
		!strings.Contains(string(licences), "Apache License") {
		t.Errorf("licences: %v", err)
	}
	if err := run(to, "", "0123456789ab", []string{program}); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(program + ".cdx.json"); err != nil || string(again) != string(text) {
		t.Errorf("the same program gives another bill: %v", err)
	}
}

// Two builds of one tree in two places are equal byte for byte.
func TestBuildsAreReproducible(t *testing.T) {
	copied := t.TempDir()
	files := exec.Command("git", "ls-files", "-z", "-co", "--exclude-standard", "--", "*.go", "go.mod",
		"go.sum",
		"catalog", "internal", "deploy")
	files.Dir = "../.."
	out, err := files.Output()
	if err != nil {
		t.Skip("no git here: ", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(copied, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	here, err := builtHere()
	if err != nil {
		t.Fatal(err)
	}
	there, err := built(copied)
	if err != nil {
		t.Fatal(err)
	}
	if string(here) != string(there) {
		t.Errorf("the programs have %d and %d bytes and differ", len(here), len(there))
	}
	if strings.Contains(string(here), copied) {
		t.Error("the program names the folder that it was built in")
	}
}

// A licence is known by its text, in any line breaks.
func TestLicences(t *testing.T) {
	for want, text := range map[string]string{
		"MIT":          "Permission is hereby\n  granted, free of charge, to any person obtaining a copy of this",
		"BSD-3-Clause": "Redistributions in binary form must reproduce the above copyright … may be used to\nendorse or promote products",
		"BSD-2-Clause": "Redistributions in binary form must reproduce the above copyright",
		"Apache-2.0":   "Apache License\n   Version 2.0, January 2004",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "LICENSE.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := licenceOf(dir); got != want {
			t.Errorf("%s: %s %v", want, got, err)
		}
	}
	if _, err := licenceOf(t.TempDir()); err == nil {
		t.Error("no licence is no error")
	}
}
