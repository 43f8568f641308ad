package accept

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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

// earlier unpacks the chart of a commit, and returns "" where it had none.
func earlier(ctx context.Context, t testing.TB, commit string) string {
	t.Helper()
	root := stage.Root(t)
	const chart = "deploy/helm/sie-cluster"
	there := exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", commit+":"+chart+"/Chart.yaml")
	if there.Run() != nil {
		return ""
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "chart.tar")
	for _, argv := range [][]string{
		{"git", "-C", root, "archive", "-o", archive, commit, chart}, {"tar", "-xf", archive, "-C", dir},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, chart, "Chart.yaml")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, chart)
}
