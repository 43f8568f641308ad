package accept

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sie-engine/sie/tools/kube/plane"
	"github.com/sie-engine/sie/tools/kube/render"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// chartDir returns the chart of this tree.
func chartDir(t testing.TB) string {
	return filepath.Join(stage.Root(t), "deploy", "helm", "sie-cluster")
}

// required are the values without which a values file is refused, such as the address of a bucket.
var required = map[string][]string{}

// objects renders the chart in dir as an install into namespace.
func objects(
	t testing.TB, p *plane.Plane, dir, namespace string, values []string, set ...string,
) []*unstructured.Unstructured {
	t.Helper()
	kinds, err := p.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		set = append(slices.Clone(required[filepath.Base(v)]), set...)
	}
	docs, _, err := render.Chart(dir, render.Options{
		Values: values, Set: set, Namespace: namespace, KubeVersion: "v1.36.0", APIs: kinds,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, d := range docs {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(d.JSON, &o.Object); err != nil {
			t.Fatalf("%s: %v", d.Source, err)
		}
		out = append(out, o)
	}
	if len(out) < 10 {
		t.Fatalf("%d objects: is this the whole chart?", len(out))
	}
	return inOrder(out)
}

// first are the kinds that others refer to; Helm creates them first too.
var first = []string{"Namespace", "PriorityClass", "ServiceAccount", "Secret", "ConfigMap",
	"PersistentVolumeClaim", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Service"}

func inOrder(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index(first, o.GetKind()); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return all
}

// pods returns the pod of each workload, as its controller would make it.
func pods(all []*unstructured.Unstructured) (out []*unstructured.Unstructured) {
	for _, o := range all {
		path := []string{"spec", "template"}
		if o.GetKind() == "CronJob" {
			path = []string{"spec", "jobTemplate", "spec", "template"}
		}
		template, found, err := unstructured.NestedMap(o.Object, path...)
		if o.GetKind() == "Pod" {
			template, found = o.DeepCopy().Object, true
		}
		if !found || err != nil {
			continue
		}
		if claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates"); claims != nil {
			volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
			for _, c := range claims {
				name, _, _ := unstructured.NestedString(c.(map[string]any), "metadata", "name")
				volumes = append(volumes, map[string]any{"name": name,
					"persistentVolumeClaim": map[string]any{"claimName": name + "-0"}})
			}
			_ = unstructured.SetNestedSlice(template, volumes, "spec", "volumes")
		}
		pod := &unstructured.Unstructured{Object: template}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName(strings.ToLower(o.GetKind()) + "-" + o.GetName())
		pod.SetNamespace(o.GetNamespace())
		out = append(out, pod)
	}
	return out
}

// later returns a copy of the chart with other versions, as its next release has.
func later(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(chartDir(t))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := version.ReplaceAll(text, []byte("$1: 99.9.9"))
	if n := len(version.FindAll(text, -1)); n != 2 {
		t.Fatalf("Chart.yaml has %d versions, not its own and the programs'", n)
	}
	if err := os.WriteFile(path, next, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

var version = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)
