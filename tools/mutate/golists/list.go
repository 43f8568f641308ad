package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one fault: a change of the text of one declaration.
type mutant struct {
	list  string // the file that lists it
	line  int    // of its heading there
	file  string // the source, in the package's folder
	decl  string // a function, "Type.method", or a variable
	name  string // what is wrong then
	old   string // the text that is replaced; it occurs once in the declaration
	new   string
	tests string // the pattern for go test -run of the tests that must notice
}

// id names the mutant in what is printed.
func (m *mutant) id() string { return m.file + " " + m.decl + ": " + m.name }

// readLists reads all lists in a folder, in the order of their names.
func readLists(folder string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var all []*mutant
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mutants, err := parseList(filepath.Base(path), string(data))
		if err != nil {
			return nil, err
		}
		all = append(all, mutants...)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.id()] {
			return nil, fmt.Errorf("%s:%d: %q is listed twice", m.list, m.line, m.id())
		}
		seen[m.id()] = true
	}
	return all, nil
}

// parseList reads one list. A line "tests: PATTERN" names the tests of the mutants behind it. A
// mutant is a heading, "file.go declaration: what is wrong", then the lines that are replaced, each
// with "- " before it, then those in their place, with "+ "; none of the latter leaves the text
// out. Lines that begin with # are comments.
func parseList(list, text string) ([]*mutant, error) {
	var all []*mutant
	var m *mutant
	tests := ""
	for i, line := range strings.Split(text, "\n") {
		fail := func(what string) ([]*mutant, error) {
			return nil, fmt.Errorf("%s:%d: %s", list, i+1, what)
		}
		rest, isTests := strings.CutPrefix(line, "tests: ")
		switch {
		case line == "" || line[0] == '#':
		case isTests:
			tests = rest
		case line[0] == '-' || line[0] == '+':
			if m == nil || line[0] == '-' && m.new != "" {
				return fail("no heading stands before the text")
			}
			to := &m.old
			if line[0] == '+' {
				to = &m.new
			}
			*to = strings.TrimPrefix(*to+"\n"+strings.TrimPrefix(line[1:], " "), "\n")
		default:
			where, name, ok := strings.Cut(line, ": ")
			file, decl, both := strings.Cut(where, " ")
			if !ok || !both {
				return fail("a heading is: file.go declaration: what is wrong")
			}
			if tests == "" {
				return fail("no tests are named before the first mutant")
			}
			m = &mutant{list: list, line: i + 1, file: file, decl: decl, name: name, tests: tests}
			all = append(all, m)
		}
	}
	for _, m := range all {
		if strings.TrimSpace(m.old) == "" {
			return nil, fmt.Errorf("%s:%d: %s: nothing is replaced", list, m.line, m.id())
		}
	}
	return all, nil
}
