package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kong"
)

// CheckPaths returns an error for every flag of a command that takes a path and was given an empty
// one, as a variable of a template that is not set leaves it. Read as a path, that would be the
// working directory, and a server would serve the models that happen to be there, or none.
func CheckPaths(k *kong.Context) error {
	var all []error
	for _, f := range k.Flags() {
		if f.Tag.Type != "path" {
			continue
		}
		given := slices.ContainsFunc(k.Path, func(p *kong.Path) bool { return p.Flag == f })
		switch name, set := variable(f); {
		case given:
			i := slices.Index(k.Args, "--"+f.Name)
			if slices.Contains(k.Args, "--"+f.Name+"=") || i >= 0 && i+1 < len(k.Args) && k.Args[i+1] == "" {
				all = append(all, fmt.Errorf("--%s is empty: name a path, or leave the flag out", f.Name))
			}
		case set && os.Getenv(name) == "":
			all = append(all, fmt.Errorf("%s is set but empty: name a path, or unset it", name))
		}
	}
	return errors.Join(all...)
}

// variable returns the variable that gives a flag its value, if one is set.
func variable(f *kong.Flag) (name string, set bool) {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name, true
		}
	}
	return "", false
}
