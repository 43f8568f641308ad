package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is the package that is broken.
const target = "runtime/arch"

// perArchitecture finds the files that need a list: those that load an encoder, record one, or are
// a head.
var perArchitecture = regexp.MustCompile(
	`\(encoder, error\) \{|\) forward\(r \*engine\.Recorder|&head\{|&qwenFamily\{|&bertFamily\{`)

// unlisted returns the files that need a list and have none.
func unlisted(root string, mutants []*mutant) ([]string, error) {
	listed := map[string]bool{}
	for _, m := range mutants {
		listed[m.file] = true
	}
	paths, err := filepath.Glob(filepath.Join(root, target, "*.go"))
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		if !strings.HasSuffix(name, "_test.go") && !listed[name] && perArchitecture.Match(data) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// program is the package's test program with all mutants in it.
type program struct {
	path, folder string
	numbers      map[*mutant]int
}

// instrumentAll writes the changed files to out, and returns the overlay that puts them in the
// place of the sources. They are no Go files by name, as build is a folder of the module.
func instrumentAll(root, out string, mutants []*mutant) (overlay map[string]string, p *program, err error) {
	folder := filepath.Join(root, target)
	p = &program{path: filepath.Join(out, "arch.test"), folder: folder, numbers: map[*mutant]int{}}
	byFile := map[string]map[int]*mutant{}
	for i, m := range mutants {
		if byFile[m.file] == nil {
			byFile[m.file] = map[int]*mutant{}
		}
		byFile[m.file][i+1], p.numbers[m] = m, i+1
	}
	overlay = map[string]string{
		filepath.Join(folder, "sie_mutant.go"): filepath.Join(out, "sie_mutant.go.txt"),
	}
	files := map[string]string{"sie_mutant.go": fmt.Sprintf(selector, filepath.Base(target))}
	for name, of := range byFile {
		s, err := readSource(folder, name)
		if err != nil {
			return nil, nil, err
		}
		if files[name], err = s.instrument(of); err != nil {
			return nil, nil, err
		}
		overlay[filepath.Join(folder, name)] = filepath.Join(out, name+".txt")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, nil, err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name+".txt"), []byte(text), 0o644); err != nil {
			return nil, nil, err
		}
	}
	return overlay, p, nil
}

// build compiles the program. The native engine must have been built.
func build(ctx context.Context, root, out string, mutants []*mutant) (*program, error) {
	overlay, p, err := instrumentAll(root, out, mutants)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(out, "overlay.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags",
		"native,disable_grpc_modules,netgo,osusergo", "-overlay", path, "-o", p.path, "./"+target)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the mutants do not compile:\n%s", said)
	}
	return p, nil
}

// verdict says what became of a mutant.
type verdict struct {
	killed  bool
	by      string // the first line that says what was wrong
	seconds float64
}

var ranTest = regexp.MustCompile(`(?m)^\s*--- PASS: (\S+)`)

// ran returns whether a test as deep as the pattern goes ran and passed. A test whose subtests are
// not there passes too, and says nothing.
func ran(tests, said string) bool {
	depth := 0
	for part := range strings.SplitSeq(tests, "|") {
		depth = max(depth, strings.Count(part, "/"))
	}
	return slices.ContainsFunc(ranTest.FindAllStringSubmatch(said, -1), func(found []string) bool {
		return strings.Count(found[1], "/") >= depth
	})
}

// run runs the tests with a mutant; number 0 is none.
func (p *program) run(ctx context.Context, number int, tests string) (verdict, string, error) {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, p.path, "-test.run", tests, "-test.v", "-test.failfast")
	cmd.Dir = p.folder
	cmd.Env = append(os.Environ(), fmt.Sprintf("SIE_MUTANT=%d", number))
	said, err := cmd.CombinedOutput()
	v := verdict{seconds: time.Since(begin).Seconds()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		v.killed, v.by, err = true, reason(said), nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return v, string(said), err
}

var complaint = regexp.MustCompile(`_test\.go:\d+: |^panic: |^fatal error: `)

// reason returns the line in which a test says what is wrong.
func reason(said []byte) string {
	for _, line := range bytes.Split(said, []byte("\n")) {
		if complaint.Match(line) {
			return strings.TrimSpace(string(line))
		}
	}
	return "it ended early"
}

// tryTests runs the tests of the mutants without one: they must run and pass.
func (p *program) tryTests(ctx context.Context, mutants []*mutant) error {
	patterns := map[string]bool{}
	for _, m := range mutants {
		patterns[m.tests] = true
	}
	for tests := range patterns {
		v, said, err := p.run(ctx, 0, tests)
		switch {
		case err != nil:
			return err
		case v.killed:
			return fmt.Errorf("%s fails without a mutant:\n%s", tests, said)
		case !ran(tests, said):
			return fmt.Errorf("%s runs no test, or skips all (build the native engine first):\n%s", tests, said)
		}
	}
	return nil
}

// judge runs each mutant, jobs at once, and returns those that live. told is called for each.
func (p *program) judge(
	ctx context.Context, mutants []*mutant, jobs int, told func(*mutant, verdict),
) (live []*mutant, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	for range jobs {
		group.Go(func() {
			for {
				mu.Lock()
				if next == len(mutants) || err != nil {
					mu.Unlock()
					return
				}
				m := mutants[next]
				next++
				mu.Unlock()
				v, _, e := p.run(ctx, p.numbers[m], m.tests)
				mu.Lock()
				err = errors.Join(err, e)
				if e == nil && !v.killed {
					live = append(live, m)
				}
				told(m, v)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.SortFunc(live, func(a, b *mutant) int { return p.numbers[a] - p.numbers[b] })
	return live, err
}
