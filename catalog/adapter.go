package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AdapterPath is a profile's adapter_path: "module.path:Class", or "file.py:Class" for the user's
// own code. Such a file loads as configuration but never runs.
type AdapterPath struct {
	Module string // text before the colon, as written; bundles and hashes compare it
	Class  string
	File   bool
}

func (a AdapterPath) String() string {
	if a.Module == "" {
		return ""
	}
	return a.Module + ":" + a.Class
}

// ParseAdapterPath parses an adapter path and checks its form only. Resolved.Usable checks whether
// the adapter is known.
func ParseAdapterPath(s string) (AdapterPath, error) {
	form := errors.New(`expected "module.path:Class" or "file.py:Class"`)
	module, class, ok := strings.Cut(s, ":")
	if !ok || module == "" || !isIdentifier(class) || strings.ContainsAny(module, " \t\r\n") {
		return AdapterPath{}, fmt.Errorf("%w, got %q", form, clip(s))
	}
	a := AdapterPath{
		Module: module,
		Class:  class,
		File:   strings.HasSuffix(module, ".py") || strings.ContainsAny(module, `/\`),
	}
	if !a.File {
		for part := range strings.SplitSeq(module, ".") {
			if !isIdentifier(part) {
				return AdapterPath{}, fmt.Errorf("%w, got %q", form, clip(s))
			}
		}
	}
	return a, nil
}

func isIdentifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// name returns the module without the reference's package prefixes and without the ".adapter"
// suffix, which the reference's newer generation gives to adapters in a folder.
func (a AdapterPath) name() string {
	s := a.Module
	for _, prefix := range []string{"sie_server.adapters.", "sie_server_rust.adapters."} {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			s = rest
			break
		}
	}
	return strings.TrimSuffix(s, ".adapter")
}

// unknownAdapter returns the error for an adapter that belongs to no family.
func unknownAdapter(id string, a AdapterPath) error {
	if a.File {
		return fmt.Errorf(
			"model '%s' uses the custom adapter file '%s': this server has no Python and runs no user "+
				"code; use one of the built-in adapter modules", id, clip(a.String()))
	}
	names := adapterNames()
	slices.Sort(names)
	msg := fmt.Sprintf("model '%s' uses the adapter '%s', which this server does not know",
		id, clip(a.String()))
	if near := closeMatches(a.name(), names, 1, suggestCutoff); len(near) > 0 {
		msg += fmt.Sprintf("; did you mean 'sie_server.adapters.%s'?", near[0])
	}
	return errors.New(msg)
}
