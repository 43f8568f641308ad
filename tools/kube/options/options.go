// Package options compares manifests with the flags and variables of the programs that they start.
//
// Entry points: Load, Known.Check, Known.Uncovered. deploy/options holds what the programs know: a
// list of each program's flags, which a test of the program keeps; variables.yaml, what it reads
// besides; reasons.yaml, why a flag is not among the chart's values.
package options

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// programs are the programs by the last part of their images' names.
var programs = map[string]string{
	"sie-gateway": "sie-gateway", "sie-config": "sie-config", "sie-server": "sie-server",
	"sie-server-sidecar": "sie-sidecar",
}

// Program returns the program of an image, or "" for an image of another project.
func Program(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	return programs[name]
}

// option is one flag of one command.
type option struct {
	flag string // with its dashes
	vars []string
}

// Known is what the programs know.
type Known struct {
	commands  map[string]map[string][]option // by program and command; "-" where it has none
	variables map[string]map[string]string   // by program and name: what reads it
	reasons   map[string]map[string]map[string]string
}

// Load reads deploy/options.
func Load(dir string) (*Known, error) {
	k := &Known{commands: map[string]map[string][]option{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		commands := map[string][]option{}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 2 || len(words) > 3 {
				return nil, fmt.Errorf("%s: %q is no line of a flag", f, line)
			}
			o := option{flag: words[1]}
			if len(words) == 3 {
				o.vars = strings.Split(words[2], ",")
			}
			commands[words[0]] = append(commands[words[0]], o)
		}
		k.commands[strings.TrimSuffix(filepath.Base(f), ".txt")] = commands
	}
	if len(k.commands) != len(programs) {
		return nil, fmt.Errorf("%s has the flags of %d programs, want %d", dir, len(k.commands),
			len(programs))
	}
	for name, to := range map[string]any{"variables.yaml": &k.variables, "reasons.yaml": &k.reasons} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, to); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return k, nil
}

// Variables returns the variables that no flag has, by program.
func (k *Known) Variables() map[string]map[string]string { return k.variables }

// Start is how a container starts a program.
type Start struct {
	Program, Command string
	Flags            []string
	Vars             []string
}

// starts reads a container's arguments and environment.
func starts(c *corev1.Container) (s Start, err error) {
	s = Start{Program: Program(c.Image), Command: "-"}
	if s.Program == "" {
		return s, nil
	}
	if len(c.Command) > 0 {
		return s, fmt.Errorf("command %v: the image's ENTRYPOINT starts the program", c.Command)
	}
	for i, a := range c.Args {
		switch name, _, _ := strings.Cut(a, "="); {
		case strings.HasPrefix(a, "-"):
			s.Flags = append(s.Flags, name)
		case i == 0:
			s.Command = a
		}
	}
	seen := map[string]bool{}
	var problems []error
	for _, e := range c.Env {
		if seen[e.Name] {
			problems = append(problems, fmt.Errorf("%s is there twice", e.Name))
		}
		seen[e.Name] = true
		s.Vars = append(s.Vars, e.Name)
	}
	return s, errors.Join(problems...)
}

// Check returns how a container starts a program, and every flag and variable of it that the
// program does not know, unless something else reads the variable: another one's $(NAME), or the
// $NAME of files, the texts of configuration files.
func (k *Known) Check(c *corev1.Container, files string) (Start, error) {
	used := files
	for _, e := range c.Env {
		used += "\n" + e.Value
	}
	s, err := starts(c)
	if s.Program == "" || err != nil {
		return s, err
	}
	known, ok := k.commands[s.Program][s.Command]
	if !ok && s.Command != "version" {
		return s, fmt.Errorf("%s has no command %q; it has %s", s.Program, s.Command,
			strings.Join(slices.Sorted(maps.Keys(k.commands[s.Program])), ", "))
	}
	var problems []error
	for _, f := range s.Flags {
		if !slices.ContainsFunc(known, func(o option) bool { return o.flag == f }) {
			problems = append(problems, fmt.Errorf("%s %s has no flag %s", s.Program, s.Command, f))
		}
	}
	for _, v := range s.Vars {
		_, besides := k.variables[s.Program][v]
		elsewhere := strings.Contains(used, "$("+v+")") || strings.Contains(used, "$"+v+"\n")
		if !besides && !elsewhere &&
			!slices.ContainsFunc(known, func(o option) bool { return slices.Contains(o.vars, v) }) {
			problems = append(problems, fmt.Errorf("%s %s does not read %s", s.Program, s.Command, v))
		}
	}
	return s, errors.Join(problems...)
}

// Uncovered returns every flag and variable that a program knows and that neither a manifest uses,
// nor a value sets, nor a reason excuses; and every reason that excuses nothing. settings are the
// variables that users may set, by program.
func (k *Known) Uncovered(used []Start, settings map[string][]string) error {
	type command struct{ program, command string }
	flags, vars, run := map[command][]string{}, map[string][]string{}, map[command]bool{}
	for _, s := range used {
		at := command{s.Program, s.Command}
		run[at] = true
		flags[at] = append(flags[at], s.Flags...)
		vars[s.Program] = append(vars[s.Program], s.Vars...)
	}
	for program, names := range settings {
		vars[program] = append(vars[program], names...)
	}
	var problems []error
	for program, commands := range k.commands {
		for name, list := range commands {
			at := command{program, name}
			reasons := k.reasons[program][name]
			if !run[at] {
				if reasons["*"] == "" {
					problems = append(problems, fmt.Errorf("%s %s: no manifest runs it, and reasons.yaml does not say why",
						program, name))
				}
				continue
			}
			excused := map[string]bool{}
			for _, o := range list {
				covered := slices.Contains(flags[at], o.flag) ||
					slices.ContainsFunc(o.vars,
						func(v string) bool { return slices.Contains(vars[program], v) })
				_, reason := reasons[o.flag]
				excused[o.flag] = true
				switch {
				case !covered && !reason:
					problems = append(problems, fmt.Errorf("%s %s %s %v: it is in no value, and reasons.yaml does not say why",
						program, name, o.flag, o.vars))
				case covered && reason:
					problems = append(problems,
						fmt.Errorf("%s %s %s: it is used, and reasons.yaml says why not",
							program, name, o.flag))
				}
			}
			for flag, why := range reasons {
				if !excused[flag] || why == "" {
					problems = append(problems, fmt.Errorf("reasons.yaml: %s %s %s: there is no such flag, or no reason",
						program, name, flag))
				}
			}
		}
	}
	for program, list := range k.variables {
		for name := range list {
			reason := k.reasons[program]["variables"][name]
			covered := slices.Contains(vars[program], name)
			switch {
			case !covered && reason == "":
				problems = append(problems, fmt.Errorf("%s reads %s: it is in no value, and reasons.yaml does not say why",
					program, name))
			case covered && reason != "":
				problems = append(problems,
					fmt.Errorf("%s reads %s: it is used, and reasons.yaml says why not", program, name))
			}
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}
