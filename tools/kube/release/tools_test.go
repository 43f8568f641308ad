package release

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sie-engine/sie/tools/kube/plane"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// patience bounds a command, and the start of a process.
const patience = 3 * time.Minute

// made returns the one program of build/kube whose name begins so.
func made(t testing.TB, name string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(stage.Root(t), "build", "kube", name+"*[0-9]"))
	if err != nil || len(all) == 0 {
		t.Fatalf("build/kube has no %s: run make kube-check", name)
	}
	return slices.Max(all)
}

// shell runs commands in the root of the source tree, with a Helm that has nothing of this
// machine's user.
type shell struct {
	t     *testing.T
	helm  string // its file
	env   []string
	stdin string // of each command
}

// newShell returns a shell for a helm, against a control plane if there is one.
func newShell(t *testing.T, helm string, p *plane.Plane) *shell {
	t.Helper()
	home := t.TempDir()
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "HELM_") || strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS")
	})
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		env = append(env, "HELM_"+kind+"_HOME="+filepath.Join(home, kind))
	}
	if p != nil {
		config, err := p.Kubeconfig(home)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "KUBECONFIG="+config)
	}
	return &shell{t: t, helm: helm, env: env}
}

// try runs a command, and returns what it prints and what it says on standard error.
func (s *shell) try(name string, args ...string) (out, said string, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if name == "helm" {
		name = s.helm
	}
	c := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = stage.Root(s.t), s.env, &stdout, &stderr
	c.Stdin = strings.NewReader(s.stdin)
	err = c.Run()
	return stdout.String(), stderr.String(), err
}

// run runs helm, which must succeed and warn of nothing.
func (s *shell) run(args ...string) string {
	s.t.Helper()
	out, said, err := s.try("helm", args...)
	if err != nil {
		s.t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, said)
	}
	if strings.Contains(strings.ToLower(said), "warn") {
		s.t.Errorf("helm %s: %s", strings.Join(args, " "), said)
	}
	return out
}

// refused runs helm, which must fail and say why.
func (s *shell) refused(why string, args ...string) {
	s.t.Helper()
	if _, said, err := s.try("helm", args...); err == nil || !strings.Contains(said, why) {
		s.t.Errorf("helm %s: %v, want %q\n%s", strings.Join(args, " "), err, why, said)
	}
}

// The only user of a registry.
const user, password = "pusher", "of-a-test"

var listening = regexp.MustCompile(`listening on ([0-9.:]+)`)

// startRegistry starts a registry that keeps its images in a folder and asks everybody who they
// are, and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(dir, "users")
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %q}}\n"+
		"http: {addr: \"127.0.0.1:0\"}\nauth: {htpasswd: {realm: test, path: %q}}\n",
		filepath.Join(dir, "images"), users)
	for path, text := range map[string]string{config: text, users: user + ":" + string(hash) + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := stage.Start(dir, "registry", []string{"OTEL_TRACES_EXPORTER=none"}, made(t, "registry-v"),
		"serve", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at, err := p.Await(ctx, listening)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}
