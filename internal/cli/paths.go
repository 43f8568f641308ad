package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"
)

// Paths is the option of a parser that leaves an empty path empty, as a variable of a template that
// is not set leaves it. Kong would make the working directory of it, and a server would serve the
// models that happen to be there, or none.
func Paths() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		return errors.Join(kong.NamedMapper("path", kong.MapperFunc(readPath)).Apply(k),
			kong.NamedMapper("existingdir", kong.MapperFunc(readDirectory)).Apply(k))
	})
}

// readDirectory is readPath for a directory that must be there.
func readDirectory(ctx *kong.DecodeContext, target reflect.Value) error {
	if err := readPath(ctx, target); err != nil || target.String() == "" {
		return err
	}
	info, err := os.Stat(target.String())
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", target)
	}
	return err
}

// readPath reads the path of a flag, "" or "-" (standard output) as it is.
func readPath(ctx *kong.DecodeContext, target reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("path", &path); err != nil {
		return err
	}
	if path != "" && path != "-" {
		path = kong.ExpandPath(path)
	}
	target.SetString(path)
	return nil
}

// CheckPaths returns an error for every flag of a command that takes a path and was given an empty
// one. The parser has the option Paths.
func CheckPaths(k *kong.Context) error {
	var all []error
	for _, f := range k.Flags() {
		if !isPath(f) || f.Target.String() != "" {
			continue
		}
		given := slices.ContainsFunc(k.Path, func(p *kong.Path) bool { return p.Flag == f })
		switch name, set := variable(f); {
		case given:
			all = append(all, fmt.Errorf("--%s is empty: name a path, or leave the flag out", f.Name))
		case set:
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

// isPath reports whether a flag is read as Paths has it.
func isPath(f *kong.Flag) bool { return f.Tag.Type == "path" || f.Tag.Type == "existingdir" }
