package archtest

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sie-engine/sie"

// rule names the packages that those below From must not import, and why. A prefix ends at a path
// element.
type rule struct {
	From   string
	Forbid []string
	Allow  []string // exceptions below a forbidden prefix
	Why    string
}

var rules = []rule{
	{From: "runtime/engine", Forbid: []string{""},
		Allow: []string{"internal/guard", "internal/lockorder"},
		Why:   "the C boundary imports nothing of the module but what every package may"},
	{From: "runtime/tokenizer", Forbid: []string{""}, Allow: []string{"internal/errs", "internal/files"},
		Why: "tokenizers stand alone"},
	{From: "runtime/batch", Forbid: []string{""}, Allow: []string{"internal/lockorder"},
		Why: "the batcher sees ids and bytes, nothing else"},
	{From: "runtime/registry", Forbid: []string{""},
		Allow: []string{"internal/guard", "internal/lockorder"}, Why: "the registry holds any model"},
	{From: "runtime/fold", Forbid: []string{""}, Allow: []string{"internal/nprand"},
		Why: "a table is numbers"},
	{From: "runtime/lora", Forbid: []string{""}, Allow: []string{"weights", "internal/files"},
		Why: "an adapter is numbers by names"},
	{From: "runtime/chat", Forbid: []string{""}, Why: "a template is text"},
	{From: "runtime/words", Forbid: []string{""}, Why: "words are places in a text"},
	{From: "runtime/spans", Forbid: []string{""}, Allow: []string{"runtime/words"},
		Why: "spans are numbers and places in a text"},
	{From: "runtime/arch",
		Forbid: []string{"runtime", "internal", "catalog", "cmd", "gateway", "sidecar", "configd"},
		Allow: []string{
			"runtime/chat", "runtime/engine", "runtime/fold", "runtime/lora", "internal/files",
			"internal/golden", "internal/guard", "internal/half", "internal/lockorder",
		}, Why: "an architecture is tensors and operations"},
	{From: "runtime/metrics", Forbid: []string{"runtime", "catalog", "weights", "cmd"},
		Why: "series are numbers"},
	{From: "runtime/model", Forbid: []string{
		"runtime/task", "runtime/service", "runtime/server", "cmd", "internal/api", "internal/admit",
		"internal/dialect", "internal/compat", "internal/httpd",
	}, Why: "a loaded model knows no request"},
	{From: "runtime/task", Forbid: []string{
		"runtime/service", "runtime/server", "cmd", "internal/dialect", "internal/compat", "internal/httpd",
	}, Why: "a task does not know how answers are written"},
	{From: "runtime/service", Forbid: []string{"runtime/server", "cmd", "internal/dialect", "internal/httpd"},
		Why: "the service does not know HTTP"},
	{From: "runtime/server", Forbid: []string{"runtime", "catalog", "weights", "cmd"},
		Allow: []string{"runtime/service"}, Why: "an entrance knows the service alone"},
	{From: "runtime/ipc", Forbid: []string{"runtime", "weights", "cmd"}, Allow: []string{"runtime/service"},
		Why: "an entrance knows the service alone; models that a sidecar adds are read by the catalog"},
	{From: "internal/admit", Forbid: []string{""}, Allow: []string{"internal/errs"},
		Why: "any entrance admits by it, and every layer may get its Work"},
	{From: "weights", Forbid: []string{""}, Allow: []string{
		"weights", "internal/files", "internal/guard", "internal/half", "internal/lockorder",
		"internal/testrig",
	}, Why: "file formats know no models"},
	{From: "catalog", Forbid: []string{""}, Allow: []string{"internal"}, Why: "configuration is data"},
	{From: "internal",
		Forbid: []string{"catalog", "runtime", "gateway", "sidecar", "configd", "cmd", "weights"},
		Why:    "what components share depends on none of them"},
	{From: "internal/accept", Forbid: []string{""}, Why: "whatever listens may use it"},
	{From: "internal/files", Forbid: []string{""}, Why: "whatever reads files may use it"},
	{From: "internal/guard", Forbid: []string{""}, Why: "whatever starts goroutines may use it"},
	{From: "internal/cgroup", Forbid: []string{""}, Allow: []string{"internal/files"},
		Why: "it knows files of the kernel alone"},
	{From: "internal/heap", Forbid: []string{""}, Why: "every process may use it"},
	{From: "internal/half", Forbid: []string{""}, Why: "whatever has numbers may use it"},
	{From: "internal/tenant", Forbid: []string{""}, Allow: []string{"internal/errs", "internal/files"},
		Why: "any entrance asks it"},
	{From: "internal/httpd", Forbid: []string{""}, Allow: []string{
		"internal/accept", "internal/admit", "internal/api", "internal/dialect", "internal/errs",
		"internal/files", "internal/tenant",
	}, Why: "the shell of a server knows no route"},
	{From: "internal/cli", Forbid: []string{""},
		Allow: []string{
			"internal/admit", "internal/api", "internal/httpd", "internal/obs", "internal/tenant",
		},
		Why: "flags say what servers take"},
	{From: "internal/compat", Forbid: []string{""}, Allow: []string{
		"internal/admit", "internal/api", "internal/build", "internal/dialect", "internal/errs",
	}, Why: "other APIs are translated, not served"},
	{From: "internal/inference", Forbid: []string{""}, Allow: []string{
		"internal/admit", "internal/api", "internal/build", "internal/compat", "internal/dialect",
		"internal/errs", "internal/files", "internal/httpd", "internal/tenant",
	}, Why: "the routes know no server and no queue"},
	{From: "internal/pages", Forbid: []string{""},
		Allow: []string{"internal/dialect", "internal/errs", "internal/httpd"},
		Why:   "pages are files"},
	{From: "internal/bus", Forbid: []string{""}, Why: "both sides of the broker may use it"},
	{From: "internal/work", Forbid: []string{""}, Why: "both sides of the broker may use it"},
	{From: "internal/configpoll", Forbid: []string{""}, Allow: []string{"internal/bus"},
		Why: "gateways and sidecars follow sie-config in the same way"},
	{From: "internal/lease", Forbid: []string{""}, Allow: []string{"internal/bus"},
		Why: "both sides of the broker may use it"},
	{From: "internal/ipc", Forbid: []string{""}, Why: "both sides of the socket may use it"},
	{From: "internal/docform", Forbid: []string{""}, Why: "whoever hands on a document may use it"},
	{From: "internal/confighash", Forbid: []string{""}, Why: "every component must get the same hashes"},
	{From: "gateway", Forbid: []string{"runtime", "sidecar", "configd", "cmd"},
		Why: "components meet on the wire"},
	{From: "gateway/fleet", Forbid: []string{""}, Allow: []string{"internal/bus", "internal/work"},
		Why: "workers are what their heartbeats say"},
	{From: "gateway/models", Forbid: []string{"gateway", "internal/httpd", "internal/inference", "weights"},
		Allow: []string{"gateway/fleet"}, Why: "a lane is chosen before anything is queued or served"},
	{From: "gateway/scale", Forbid: []string{""}, Allow: []string{"internal/bus"},
		Why: "scaling is arithmetic on samples"},
	{From: "gateway/demand", Forbid: []string{"gateway", "catalog", "internal/httpd", "weights"},
		Allow: []string{"gateway/fleet", "gateway/pools"}, Why: "demand is of lanes"},
	{From: "gateway/pools", Forbid: []string{"gateway", "catalog", "internal/httpd", "weights"},
		Allow: []string{"gateway/fleet"}, Why: "pools are a document and workers"},
	{From: "gateway/dlq", Forbid: []string{""},
		Allow: []string{"internal/bus", "internal/errs", "internal/work"},
		Why:   "a letter outlives its gateway"},
	{From: "gateway/alias", Forbid: []string{""}, Why: "names are texts"},
	{From: "gateway/quota", Forbid: []string{""}, Allow: []string{"internal/bus", "internal/tenant"},
		Why: "quotas are numbers that gateways tell each other"},
	{From: "gateway/fair", Forbid: []string{""}, Why: "turns are numbers"},
	{From: "gateway/queue", Forbid: []string{"gateway/server", "gateway/dev", "internal/httpd"},
		Why: "the queue answers any entrance"},
	{From: "gateway/server", Forbid: []string{"gateway/queue", "gateway/dlq", "gateway/dev", "weights"},
		Why: "an entrance knows its Backend alone"},
	{From: "gateway/broker", Forbid: []string{"gateway", "catalog", "weights"},
		Why: "the broker knows subjects alone"},
	{From: "gateway/dev", Forbid: []string{"gateway", "catalog", "weights"},
		Allow: []string{"gateway/broker", "gateway/scale"}, Why: "a cluster on one machine is processes"},
	{From: "sidecar/rank", Forbid: []string{""}, Allow: []string{"internal/bus", "internal/work"},
		Why: "a rank is arithmetic on heartbeats"},
	{From: "sidecar/pull", Forbid: []string{""}, Allow: []string{"internal/bus", "internal/work"},
		Why: "pulling knows no server"},
	{From: "sidecar/results", Forbid: []string{""}, Allow: []string{"internal/bus", "internal/work"},
		Why: "results are bytes until they are receipted"},
	{From: "sidecar/ipcclient", Forbid: []string{""}, Allow: []string{"internal/errs", "internal/ipc"},
		Why: "the client of the socket knows no broker"},
	{From: "sidecar/control", Forbid: []string{""},
		Allow: []string{"internal/bus", "internal/configpoll", "internal/docform", "internal/work"},
		Why:   "documents of models are text to a sidecar"},
	{From: "cmd/sie-gateway", Forbid: []string{"runtime", "sidecar", "configd"},
		Why: "components meet on the wire"},
	{From: "cmd/sie-sidecar", Forbid: []string{"runtime", "gateway", "configd", "catalog"},
		Why: "components meet on the wire, and a sidecar knows no models"},
	{From: "cmd/sie-config", Forbid: []string{"runtime", "gateway", "sidecar"},
		Why: "components meet on the wire"},
	{From: "cmd/sie-server", Forbid: []string{"gateway", "sidecar", "configd"},
		Why: "components meet on the wire"},
	{From: "sidecar", Forbid: []string{"runtime", "gateway", "configd", "cmd", "catalog"},
		Why: "components meet on the wire, and a sidecar knows no models"},
	{From: "configd", Forbid: []string{"runtime", "gateway", "sidecar", "cmd"},
		Why: "components meet on the wire"},
}

// cgo may appear in these packages only.
var cgo = []string{"runtime/engine", "runtime/tokenizer"}

type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	Doc          string
	Imports      []string
	TestImports  []string
	CgoFiles     []string
	GoFiles      []string
	XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,CgoFiles,GoFiles", "-tags",
		"native", "./...")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	var all []pkg
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages: the test would prove nothing", len(all))
	}
	return all
}

func root(t *testing.T) string {
	t.Helper()
	d, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func under(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func rel(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func broken(r rule, from, to string) bool {
	if !under(from, r.From) || under(to, r.From) {
		return false
	}
	if slices.ContainsFunc(r.Allow, func(a string) bool { return under(to, a) }) {
		return false
	}
	return slices.ContainsFunc(r.Forbid, func(f string) bool { return under(to, f) })
}

func TestImportDirection(t *testing.T) {
	for _, p := range packages(t) {
		from, _ := rel(p.ImportPath)
		for _, imp := range p.Imports {
			to, ours := rel(imp)
			if !ours {
				continue
			}
			for _, r := range rules {
				if broken(r, from, to) {
					t.Errorf("%s imports %s: %s", from, to, r.Why)
				}
			}
		}
	}
}

// The rules must catch each planted import; otherwise they prove nothing.
func TestRulesCatchPlantedImports(t *testing.T) {
	planted := [][2]string{
		{"gateway/http", "runtime/engine"}, {"internal/api", "runtime/batch"},
		{"runtime/engine", "internal/errs"},
		{"weights", "catalog"}, {"runtime/model", "runtime/task"}, {"runtime/task", "runtime/service"},
		{"runtime/service", "runtime/server"},
		{"runtime/server", "runtime/task"}, {"runtime/server", "runtime/metrics"},
		{"runtime/server", "runtime/model"}, {"runtime/model", "internal/api"},
		{"internal/admit", "internal/api"},
		{"runtime/arch", "runtime/batch"}, {"runtime/words", "runtime/tokenizer"},
		{"runtime/spans", "runtime/task"},
		{"runtime/metrics", "runtime/model"}, {"internal/obs", "catalog"},
		{"internal/httpd", "internal/obs"}, {"internal/httpd", "runtime/model"},
		{"internal/compat", "catalog"}, {"internal/compat", "internal/httpd"},
		{"internal/cli", "internal/compat"}, {"internal/httpd", "internal/cli"},
		{"internal/files", "internal/errs"}, {"internal/half", "weights"},
		{"internal/bus", "internal/work"}, {"internal/work", "internal/bus"},
		{"internal/ipc", "internal/work"}, {"internal/confighash", "catalog"},
		{"gateway/fleet", "gateway/models"}, {"gateway/fleet", "catalog"},
		{"gateway/models", "gateway/queue"}, {"gateway/queue", "gateway/server"},
		{"gateway/server", "gateway/queue"}, {"gateway/dev", "gateway/queue"},
		{"gateway/dlq", "gateway/queue"}, {"gateway/broker", "catalog"},
		{"sidecar/rank", "sidecar/worker"}, {"sidecar/pull", "internal/ipc"},
		{"sidecar/results", "internal/ipc"}, {"sidecar/ipcclient", "internal/bus"},
		{"sidecar/worker", "catalog"}, {"sidecar/control", "catalog"}, {"configd", "gateway/models"},
		{"cmd/sie-gateway", "runtime/task"}, {"cmd/sie-sidecar", "catalog"},
		{"cmd/sie-config", "runtime/task"}, {"cmd/sie-server", "sidecar/worker"},
		{"runtime/ipc", "runtime/model"},
		{"internal/inference", "runtime/service"}, {"internal/inference", "gateway/queue"},
		{"internal/inference", "internal/bus"}, {"internal/httpd", "internal/inference"},
		{"internal/compat", "internal/inference"}, {"gateway/server", "runtime/server"},
	}
	for _, p := range planted {
		if !slices.ContainsFunc(rules, func(r rule) bool { return broken(r, p[0], p[1]) }) {
			t.Errorf("no rule forbids %s → %s", p[0], p[1])
		}
	}
}

func TestOnlyTheBoundaryUsesCgo(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		if len(p.CgoFiles) == 0 {
			continue
		}
		seen++
		if from, _ := rel(p.ImportPath); !slices.Contains(cgo, from) {
			t.Errorf("%s imports \"C\"", from)
		}
	}
	if seen == 0 {
		t.Error("no package with cgo was found: was it built with the native tag?")
	}
}

// pure lists the programs that build with CGO_ENABLED=0.
var pure = []string{"cmd/sie-gateway", "cmd/sie-sidecar", "cmd/sie-config"}

// buildTags returns the tags that the Makefile gives to every build.
func buildTags(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, tags, _ := strings.Cut(string(text), "\nPURETAGS := -tags ")
	tags, _, _ = strings.Cut(tags, "\n")
	if tags == "" {
		t.Fatal("the Makefile has no PURETAGS")
	}
	return tags
}

// Programs without inference need no C: of everything they import, all is there without cgo. With
// cgo it is of the same files, so that sie-server and the tests share packages with those programs.
func TestTheClusterBuildsWithoutCgo(t *testing.T) {
	files := map[string]string{}
	for _, with := range []string{"0", "1"} {
		cmd := exec.Command("go", "list", "-deps", "-tags", buildTags(t), "-f",
			"{{.ImportPath}} {{len .GoFiles}} {{len .CgoFiles}} {{.GoFiles}}")
		for _, dir := range pure {
			cmd.Args = append(cmd.Args, "./"+dir)
		}
		cmd.Dir, cmd.Stderr = root(t), os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+with)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if p, ours := rel(f[0]); ours && slices.Contains(cgo, p) || f[2] != "0" || f[1] == "0" &&
				f[0] != "unsafe" {
				t.Errorf("with CGO_ENABLED=%s: %s needs cgo: %s", with, f[0], line)
			}
			if with == "0" {
				files[f[0]] = line
			} else if files[f[0]] != line {
				t.Errorf("with cgo %swithout it %s", line, files[f[0]])
			}
		}
	}
}

// A build with other tags than the Makefile's compiles a third of all packages anew.
func TestEveryBuildHasTheSameTags(t *testing.T) {
	named, seen := regexp.MustCompile(`disable_grpc_[a-z_,]*`), 0
	for _, dir := range []string{"tools", "sidecar", "cmd", "gateway", "configd", "runtime"} {
		top := filepath.Join(root(t), dir)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if kind := filepath.Ext(path); err != nil || kind != ".go" && kind != ".py" && kind != ".sh" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, tags := range named.FindAllString(string(text), -1) {
				seen++
				if tags != buildTags(t) {
					t.Errorf("%s builds with %s, the Makefile with %s", path, tags, buildTags(t))
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if seen < 15 {
		t.Errorf("%d builds with tags were found", seen)
	}
}

// Every package has exactly one package comment, in one file.
func TestPackagesAreDocumented(t *testing.T) {
	for _, p := range packages(t) {
		from, _ := rel(p.ImportPath)
		docs := 0
		for _, f := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
			a, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil,
				parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if a.Doc != nil && strings.TrimSpace(a.Doc.Text()) != "" {
				docs++
			}
		}
		if docs != 1 && len(p.GoFiles)+len(p.CgoFiles) > 0 {
			t.Errorf("%s has %d package comments, want 1", from, docs)
		}
	}
}

// No Go file lies directly in a folder that only groups packages.
func TestGroupingFoldersHoldNoCode(t *testing.T) {
	for _, d := range []string{".", "runtime", "internal", "cmd", "gateway", "sidecar"} {
		files, err := filepath.Glob(filepath.Join(root(t), d, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			t.Errorf("%s holds %v", d, files)
		}
	}
}
