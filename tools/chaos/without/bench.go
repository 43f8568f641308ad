package without

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Verdict is what became of a judge.
type Verdict struct {
	Fix   *Fix
	Judge string // a test as package:name, or a row
	Red   bool
	Why   string // the first words of the failure; where the judge is not red, what is wrong
	Took  time.Duration
}

// RunRow runs a row with the programs of a folder, and returns what is broken in it. An error is
// the harness's.
type RunRow func(ctx context.Context, programs, row string) (broken []string, err error)

// Bench leaves fixes out, one after another. Its methods belong to one goroutine.
type Bench struct {
	Top  string // of the source tree
	Dir  string // for what is built; it and what is in it is the caller's
	Bin  string // the built programs; sie-server is taken from there, where no patch is in it
	Row  RunRow
	Log  io.Writer           // what the judges say
	Told func(v Verdict)     // called with each verdict
	seen map[string][]string // failed tests of the tree as it is, by package
}

// The programs that need no C, and with what they are built.
var (
	pure     = []string{"sie-gateway", "sie-sidecar", "sie-config"}
	pureTags = "disable_grpc_modules,netgo,osusergo"
)

// The bounds of a test without its fix, which may wait for what never comes, and with it.
const (
	withoutTime = 45 * time.Second
	controlTime = 4 * time.Minute
)

// Run leaves each fix out and runs its judges. It returns the number of judges that are not red. An
// error is one of the table or of the build: then nothing is proved.
func (b *Bench) Run(ctx context.Context, fixes []Fix) (green int, err error) {
	var all []error
	for i := range fixes {
		f := &fixes[i]
		list, err := b.one(ctx, f)
		for _, v := range list {
			if !v.Red {
				green++
			}
			b.Told(v)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", f.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return green, errors.Join(all...)
}

func (b *Bench) one(ctx context.Context, f *Fix) (list []Verdict, err error) {
	dir := filepath.Join(b.Dir, f.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	over, err := overlay(b.Top, dir, f)
	if err != nil {
		return nil, err
	}
	for _, t := range f.Tests {
		v := Verdict{Fix: f, Judge: t.String()}
		begin := time.Now()
		if v.Red, v.Why, err = b.test(ctx, dir, over, t); err != nil {
			return list, err
		}
		if v.Red {
			if why, err := b.control(ctx, t); err != nil {
				return list, err
			} else if why != "" {
				v.Red, v.Why = false, "it is red with the fix too: "+why
			}
		}
		v.Took = time.Since(begin)
		list = append(list, v)
	}
	if f.Row == "" {
		return list, nil
	}
	v := Verdict{Fix: f, Judge: f.Row}
	begin := time.Now()
	broken, err := b.row(ctx, dir, over, f.Row)
	if err != nil {
		return list, err
	}
	v.Why = "the row holds"
	if len(broken) > 0 {
		v.Why = strings.Join(broken, "; ")
		v.Red = slices.ContainsFunc(broken, func(x string) bool { return strings.Contains(x, f.Sees) })
		if !v.Red {
			v.Why = fmt.Sprintf("nothing broken says %q: %s", f.Sees, v.Why)
		}
	}
	v.Took = time.Since(begin)
	return append(list, v), nil
}

// test runs one test with an overlay, "" for none.
func (b *Bench) test(ctx context.Context, dir, over string, t Test) (red bool, why string, err error) {
	binary := filepath.Join(dir, strings.ReplaceAll(t.Package, "/", "_")+".test")
	if _, err := os.Stat(binary); err != nil { // another test of the package did not build it
		args := []string{"test", "-c", "-vet=off", "-trimpath", "-tags", pureTags, "-o", binary}
		if over != "" {
			args = append(args, "-overlay", over)
		}
		if err := b.command(ctx, b.Top, "go", append(args, "./"+t.Package)...); err != nil {
			return false, "", err
		}
	}
	limit := withoutTime
	if over == "" {
		limit = controlTime
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, "-test.run", pattern(t.Name), "-test.v",
		"-test.timeout", limit.String())
	cmd.Dir = filepath.Join(b.Top, t.Package)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	_, _ = b.Log.Write(out.Bytes()) // for who looks
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	case err == nil && !strings.Contains(out.String(), "--- PASS: "+t.Name):
		return false, "", fmt.Errorf("%v ran no test", t)
	case err == nil:
		return false, "the test holds", nil
	case !errors.As(err, &exit), !failed.Match(out.Bytes()):
		return false, "", fmt.Errorf("%v did not run: %w: %.500s", t, err, out.Bytes())
	}
	return true, firstWords(out.String()), nil
}

// pattern returns the regular expression of one test, or of one of its parts.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// failed matches the words of a test that failed, and of one that ended its process.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: |^panic: |^fatal error: `)

var failure = regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: (.*)$`)

// firstWords returns what a failed test says first.
func firstWords(out string) string {
	if m := failure.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if i := strings.Index(out, "panic: "); i >= 0 {
		line, _, _ := strings.Cut(out[i:], "\n")
		return line
	}
	return "it failed"
}

// control runs a test of the tree as it is and returns why it is red, "" where it is green. It runs
// each test once.
func (b *Bench) control(ctx context.Context, t Test) (why string, err error) {
	if b.seen == nil {
		b.seen = map[string][]string{}
	}
	known, ok := b.seen[t.String()]
	if !ok {
		dir := filepath.Join(b.Dir, "as-it-is")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		red, why, err := b.test(ctx, dir, "", t)
		if err != nil {
			return "", err
		}
		if red {
			known = []string{why}
		}
		b.seen[t.String()] = known
	}
	return strings.Join(known, "; "), nil
}

// row builds the programs with an overlay and runs a row with them.
func (b *Bench) row(ctx context.Context, dir, over, name string) ([]string, error) {
	programs := filepath.Join(dir, "bin")
	args := []string{"build", "-trimpath", "-tags", pureTags, "-overlay", over, "-o", programs + "/"}
	for _, p := range pure {
		args = append(args, "./cmd/"+p)
	}
	if err := b.command(ctx, b.Top, "go", args...); err != nil {
		return nil, err
	}
	const kept = "sie-server"
	if err := os.Symlink(filepath.Join(b.Bin, kept), filepath.Join(programs, kept)); err != nil {
		return nil, err
	}
	return b.Row(ctx, programs, name)
}

// command runs a command without C and returns its words where it fails.
func (b *Bench) command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, args[0], err, out)
	}
	return nil
}

// Select returns the fixes whose name begins with one of the words; all for none.
func Select(fixes []Fix, words []string) ([]Fix, error) {
	if len(words) == 0 {
		return fixes, nil
	}
	var out []Fix
	used := make([]bool, len(words))
	for _, f := range fixes {
		take := false
		for i, w := range words {
			if strings.HasPrefix(f.Name, w) {
				take, used[i] = true, true
			}
		}
		if take {
			out = append(out, f)
		}
	}
	for i, u := range used {
		if !u {
			return nil, fmt.Errorf("no fix begins with %q; `chaos without --list` names them", words[i])
		}
	}
	return out, nil
}

// Judges names what judges a fix.
func (f *Fix) Judges() (names []string) {
	for _, t := range f.Tests {
		names = append(names, t.String())
	}
	if f.Row != "" {
		names = append(names, f.Row)
	}
	return names
}

// maxWhy bounds the words of a failure in a table.
const maxWhy = 160

// words returns why in one line.
func (v *Verdict) words() string {
	why := strings.Join(strings.Fields(v.Why), " ")
	if r := []rune(why); len(r) > maxWhy {
		why = string(r[:maxWhy]) + "…"
	}
	return why
}

// String returns a line for a terminal.
func (v *Verdict) String() string {
	mark := "red"
	if !v.Red {
		mark = "NOT RED"
	}
	return fmt.Sprintf("%-24s %-7s %4.0f s  %s: %s", v.Fix.Name, mark, v.Took.Seconds(), v.Judge, v.words())
}

// Markdown writes the table of verdicts.
func Markdown(w io.Writer, list []Verdict) error {
	var b strings.Builder
	b.WriteString("| left out | what it does | judge | | it says |\n| --- | --- | --- | --- | --- |\n")
	for i := range list {
		v := &list[i]
		mark := "red"
		if !v.Red {
			mark = "**not red**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", v.Fix.Name, v.Fix.What, v.Judge, mark,
			strings.ReplaceAll(v.words(), "|", "\\|"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
