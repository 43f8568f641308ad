// Command sbom says what is in Go programs: for each a bill of materials in CycloneDX, and the
// licences of all that is in it. Both come from the program itself, which names its modules, and
// from the module cache; nothing is asked of the network. The same program gives the same bytes.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	to := flag.String("to", "bin/sbom", "folder for NAME.cdx.json and NAME.licenses.txt")
	cargo := flag.String("cargo", "", "Cargo.lock of the Rust library that sie-server links")
	commit := flag.String("commit", "unknown", "what the programs were built from")
	flag.Parse()
	if err := run(*to, *cargo, *commit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the two files of each program. The crates are those of a program with C in it.
func run(to, cargo, commit string, programs []string) error {
	if len(programs) == 0 {
		return errors.New("name programs, such as bin/sie-gateway")
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		parts, err := modules(info)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if cargo != "" && setting(info, "CGO_ENABLED") == "1" {
			more, err := crates(cargo)
			if err != nil {
				return err
			}
			parts = append(parts, more...)
		}
		name := filepath.Base(path)
		if err := write(filepath.Join(to, name), document(name, commit, info, parts), parts); err != nil {
			return err
		}
	}
	return nil
}

// write writes what NAME holds, and under which licences.
func write(name string, bill []byte, parts []part) error {
	texts, err := licenceTexts(parts)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name+".cdx.json", bill, 0o644),
		os.WriteFile(name+".licenses.txt", texts, 0o644))
}
