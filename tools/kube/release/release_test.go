package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/sie-engine/sie/tools/kube/plane"
	"github.com/sie-engine/sie/tools/kube/stage"
)

const (
	chart     = "deploy/helm/sie-cluster"
	name      = "sie-cluster"
	namespace = "sie"
	mine      = "app.kubernetes.io/instance=" + name
)

// install is what users of the reference type, word for word, but for the token.
var install = []string{"upgrade", "--install", name, chart, "--namespace", namespace, "--create-namespace",
	"--set", "hfToken.create=true", "--set", "hfToken.value=hf_of_a_test",
	"-f", chart + "/values-gke.yaml"}

// kept are what `helm uninstall` leaves: the models that were added, and the passwords of NATS,
// which a later install takes again.
var kept = []string{"PersistentVolumeClaim sie-config-store", "Secret sie-nats-auth"}

// with returns the install with something more.
func with(more ...string) []string { return slices.Concat(install, more) }

// Each major version of helm installs the chart as users type it, upgrades it, tests it, goes back
// and removes it; what is there afterwards is what was rendered, and passwords stay what they were.
func TestHelmInstallsUpgradesAndRemoves(t *testing.T) {
	stage.Full(t)
	for _, helm := range []string{"helm-v3", "helm-v4"} {
		t.Run(helm, func(t *testing.T) {
			p := plane.Start(t)
			s := newShell(t, made(t, helm), p)
			if v := s.run("version", "--short"); !strings.HasPrefix(v, strings.TrimPrefix(helm, "helm-")) {
				t.Fatalf("%s is %s", helm, v)
			}
			s.run("lint", chart, "--strict", "-f", chart+"/values-gke.yaml")
			s.lives(p)
		})
	}
}

// lives has a release live its whole life.
func (s *shell) lives(p *plane.Plane) {
	t := s.t
	out := s.run(install...)
	for _, want := range []string{"STATUS: deployed", "REVISION: 1\n", "is in the namespace sie.",
		"default/l4/default: 0 to 10 workers"} {
		if !strings.Contains(out, want) {
			t.Errorf("helm does not say %q:\n%s", want, out)
		}
	}
	first := s.there(p)
	secret := get(t, p, "Secret", "sie-hf-token")
	if secret == nil || data(t, secret)["token"] != "hf_of_a_test" {
		t.Errorf("the token's secret: %v", secret)
	}
	passwords := data(t, get(t, p, "Secret", "sie-nats-auth"))
	if len(passwords) != 5 {
		t.Errorf("NATS has the users %v", slices.Sorted(maps.Keys(passwords)))
	}

	// The same again changes nothing.
	s.run(install...)
	if again := s.there(p); !bytes.Equal(again, first) {
		t.Error("the same command makes other manifests the second time")
	}
	s.upgrades(p, passwords)
	s.refuses()
	s.tests(p)

	s.run("rollback", name, "1", "--namespace", namespace)
	if back := s.there(p); !bytes.Equal(back, first) {
		t.Error("helm rollback does not bring back the first manifests")
	}
	s.ends(p, passwords)
}

// upgrades changes values, and sees them change on the server.
func (s *shell) upgrades(p *plane.Plane, passwords map[string]string) {
	out := s.run(with("--set", "gateway.requestTimeoutSeconds=61", "--set", "gateway.image.tag=2.0.0",
		"--set", "workers.pools.l4.maxReplicas=7")...)
	if !strings.Contains(out, "REVISION: 3\n") {
		s.t.Errorf("after two installs and an upgrade helm says\n%s", out)
	}
	manifests := s.there(p)
	for _, want := range []string{`value: "61"`, "sie-gateway:2.0.0", "maxReplicaCount: 7"} {
		if !bytes.Contains(manifests, []byte(want)) {
			s.t.Errorf("the upgrade's manifests have no %s", want)
		}
	}
	gateway, err := json.Marshal(get(s.t, p, "Deployment", "sie-gateway"))
	if err != nil || !bytes.Contains(gateway, []byte("sie-gateway:2.0.0")) {
		s.t.Errorf("the server still has the gateway %s: %v", gateway, err)
	}
	if now := data(s.t, get(s.t, p, "Secret", "sie-nats-auth")); !maps.Equal(now, passwords) {
		s.t.Error("an upgrade changes NATS's passwords")
	}
}

// refuses tries upgrades that must not come to anything.
func (s *shell) refuses() {
	before := s.run("history", name, "--namespace", namespace, "-o", "json")
	s.refused("replcas", with("--set", "gateway.replcas=3")...)
	s.refused("it must be more than 132", with("--set", "gateway.terminationGracePeriodSeconds=20")...)
	s.refused("hfToken.create needs hfToken.value", with("--set", "hfToken.value=")...)
	if after := s.run("history", name, "--namespace", namespace, "-o", "json"); after != before {
		s.t.Errorf("a refused upgrade is in the history:\n%s", after)
	}
	// A typo in a template the schema cannot see. Version 4 refuses what the server does not know,
	// version 3 warns.
	dir := filepath.Join(s.t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(stage.Root(s.t), chart))); err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(dir, "templates", "gateway.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	typo := bytes.Replace(text, []byte("GracePeriodSeconds:"), []byte("GracePeriodSecond:"), 1)
	if bytes.Equal(typo, text) {
		s.t.Fatal("gateway.yaml has no grace")
	}
	if err := os.WriteFile(file, typo, 0o600); err != nil {
		s.t.Fatal(err)
	}
	args := slices.Clone(install)
	args[3] = dir
	if _, said, err := s.try("helm", args...); !strings.Contains(said, "terminationGracePeriodSecond") {
		s.t.Errorf("helm does not tell of a typo: %v\n%s", err, said)
	}
}

// tests runs `helm test`, with this test as the kubelet: it passes when the pod succeeds, and only
// then.
func (s *shell) tests(p *plane.Plane) {
	t := s.t
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err) // which a controller makes in a real cluster
	}
	for _, end := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- pretend(ctx, client, end) }()
		out, said, err := s.try("helm", "test", name, "--namespace", namespace, "--timeout", "120s")
		cancel()
		if seen := <-ran; seen != nil {
			t.Errorf("the test's pod: %v", seen)
		}
		if passed := err == nil; passed != (end == corev1.PodSucceeded) {
			t.Errorf("helm test of a pod that has %s: %v\n%s%s", end, err, out, said)
		}
	}
}

// pretend waits for the test's pod and gives it an end.
func pretend(ctx context.Context, client kubernetes.Interface, end corev1.PodPhase) error {
	pods := client.CoreV1().Pods(namespace)
	for {
		pod, err := pods.Get(ctx, "sie-test", metav1.GetOptions{})
		if err == nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodPending {
			pod.Status.Phase = end
			_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("helm test made none: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ends removes the release, and installs it again over what was kept.
func (s *shell) ends(p *plane.Plane, passwords map[string]string) {
	t := s.t
	s.run("uninstall", name, "--namespace", namespace)
	left, err := p.Labelled(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	left = slices.DeleteFunc(left, func(o string) bool { return o == "Pod sie-test" }) // it failed
	if !slices.Equal(left, kept) {
		t.Errorf("helm uninstall leaves %v, want %v", left, kept)
	}
	s.run(install...)
	s.there(p)
	if now := data(t, get(t, p, "Secret", "sie-nats-auth")); !maps.Equal(now, passwords) {
		t.Error("another install does not take the passwords that were kept")
	}
}

// there returns the manifests of the release after seeing that the server has each of their
// objects, and none else of the release.
func (s *shell) there(p *plane.Plane) []byte {
	t := s.t
	t.Helper()
	text := []byte(s.run("get", "manifest", name, "--namespace", namespace))
	objects, err := plane.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, o := range objects {
		want = append(want, o.GetKind()+" "+o.GetName())
		if now, err := p.Get(t.Context(), o, namespace); err != nil || now == nil {
			t.Errorf("%s is not there: %v", plane.Name(o), err)
		}
	}
	if len(want) < 30 {
		t.Errorf("%d objects: is this the whole chart?", len(want))
	}
	got, err := p.Labelled(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(got, func(o string) bool { return o == "Pod sie-test" })
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the server has\n%v\nthe release\n%v", got, want)
	}
	return text
}

// get returns an object of the release, nil if there is none.
func get(t *testing.T, p *plane.Plane, kind, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	if kind == "Deployment" {
		o.SetAPIVersion("apps/v1")
	}
	o.SetName(name)
	now, err := p.Get(t.Context(), o, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// data returns what a secret holds.
func data(t *testing.T, o *unstructured.Unstructured) map[string]string {
	t.Helper()
	if o == nil {
		t.Fatal("there is no secret")
	}
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var s corev1.Secret
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out
}

var digest = regexp.MustCompile(`oci://\S+/charts/sie-cluster --version (\S+) \((sha256:[0-9a-f]{64})\)`)

// `make chart-push` packs the chart and pushes it to a registry, as who logged in with helm; helm
// gets it back, and installs it from there.
func TestTheChartGoesThroughARegistry(t *testing.T) {
	stage.Full(t)
	registry := startRegistry(t)
	p := plane.Start(t)
	for i, helm := range []string{"helm-v3", "helm-v4"} {
		t.Run(helm, func(t *testing.T) {
			s := newShell(t, made(t, helm), p)
			to := fmt.Sprintf("oci://%s/%s/charts", registry, helm)
			push := []string{"-s", "--no-print-directory", "chart-push", "TO=" + to, "PLAIN_HTTP=1"}
			out, said, err := s.try("make", push...)
			if err == nil || !strings.Contains(said, "basic credential not found") {
				t.Errorf("a push of nobody: %v\n%s%s", err, out, said)
			}
			s.stdin = password
			s.run("registry", "login", registry, "--plain-http", "-u", user, "--password-stdin")
			if out, said, err = s.try("make", push...); err != nil {
				t.Fatalf("%v\n%s%s", err, out, said)
			}
			m := digest.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("make chart-push says %q", out)
			}

			dir := t.TempDir()
			ref := to + "/sie-cluster"
			s.run("pull", ref, "--version", m[1], "--plain-http", "--destination", dir)
			file := "sie-cluster-" + m[1] + ".tgz"
			got, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(stage.Root(t), "build", "charts", file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes come back, %d were pushed: %v", len(got), len(want), err)
			}
			// Helm's own package has the same files.
			s.run("package", chart, "--destination", dir)
			ours, theirs := s.run("show", "all", filepath.Join(stage.Root(t), "build", "charts", file)),
				s.run("show", "all", filepath.Join(dir, file))
			if ours != theirs || len(ours) < 1000 {
				t.Error("helm package makes another chart than make chart-package")
			}

			into := fmt.Sprintf("from-%d", i)
			args := slices.Clone(install)
			args[3], args[5] = ref, into
			args = append(args, "--version", m[1], "--plain-http", "--set", "priorityClasses.create=false")
			out = s.run(args...)
			if !strings.Contains(out, "STATUS: deployed") {
				t.Errorf("helm says\n%s", out)
			}
			s.run("uninstall", name, "--namespace", into)
		})
	}
}
