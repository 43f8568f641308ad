package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
)

// part is one library in a program.
type part struct {
	name, version string
	purl          string // package URL
	sum           string // of its files, in its ecosystem's form; "" if there is none
	licence       string // an SPDX expression
	dir           string // where its licence files are
}

// setting returns a build setting of a program.
func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// modules returns the Go modules in a program, and Go's own library.
func modules(info *buildinfo.BuildInfo) (parts []part, err error) {
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	cache, root, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	version := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
	parts = append(parts, part{name: "std", version: "v" + version, purl: "pkg:golang/std@" + version,
		dir: root})
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: say in this program where it is", m.Path)
		}
		parts = append(parts, part{name: m.Path, version: m.Version, sum: m.Sum,
			purl: "pkg:golang/" + strings.ToLower(m.Path) + "@" + m.Version, dir: cached(cache, m)})
	}
	for i := range parts {
		if parts[i].licence, err = licenceOf(parts[i].dir); err != nil {
			return nil, fmt.Errorf("%s: %w", parts[i].name, err)
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return parts, nil
}

// cached returns the folder of a module in the module cache, where capital letters are written
// "!a".
func cached(cache string, m *debug.Module) string {
	var b strings.Builder
	for _, r := range m.Path + "@" + m.Version {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return filepath.Join(cache, b.String())
}

// The fields of a crate in Cargo.lock, and its licence in Cargo.toml.
var (
	crateName     = regexp.MustCompile(`(?m)^name = "([^"]+)"$`)
	crateVersion  = regexp.MustCompile(`(?m)^version = "([^"]+)"$`)
	crateSum      = regexp.MustCompile(`(?m)^checksum = "([^"]+)"$`)
	slash         = regexp.MustCompile(`\s*/\s*`) // an older form of OR
	crateLicence  = regexp.MustCompile(`(?m)^license = "([^"]+)"$`)
	errNoLicences = errors.New("it has no licence file")
)

// crates returns the Rust crates of a Cargo.lock that come from a registry and have been fetched:
// those of other systems are not.
func crates(lock string) (parts []part, err error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		home = filepath.Join(user, ".cargo")
	}
	first := func(r *regexp.Regexp, in string) string {
		if m := r.FindStringSubmatch(in); m != nil {
			return m[1]
		}
		return ""
	}
	for _, entry := range strings.Split(string(text), "[[package]]")[1:] {
		p := part{name: first(crateName, entry), version: first(crateVersion, entry), sum: first(crateSum,
			entry)}
		if p.sum == "" {
			continue // the library itself
		}
		dirs, err := filepath.Glob(filepath.Join(home, "registry/src/*", p.name+"-"+p.version))
		if err != nil || len(dirs) == 0 {
			continue
		}
		manifest, err := os.ReadFile(filepath.Join(dirs[0], "Cargo.toml"))
		if err != nil {
			return nil, err
		}
		p.dir, p.purl = dirs[0], "pkg:cargo/"+p.name+"@"+p.version
		p.licence = slash.ReplaceAllString(first(crateLicence, string(manifest)), " OR ")
		if p.licence == "" {
			return nil, fmt.Errorf("%s: Cargo.toml names no licence", dirs[0])
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: no crate of it is in %s/registry", lock, home)
	}
	return parts, nil
}
